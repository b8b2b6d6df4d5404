"""``zeroone evaluate``: what the one judge says of a network on some data."""

from collections.abc import Sequence
from typing import Any

from zeroone.checks import not_negative
from zeroone.counts import counts
from zeroone.data.arrays import Split
from zeroone.data.files import in_order
from zeroone.metrics import error_rates, noise_errors
from zeroone.network import Network
from zeroone.records import new_record
from zeroone.training.lines import say
from zeroone.training.parts import known_part


def evaluate_network(
    network: Network, split: Split, noise: Sequence[float] = (), *, quiet: bool = True
) -> dict[str, Any]:
    """The record of a network's errors, clean and in noise, and of its size.

    On the test part, if there is one.
    """
    for level in noise:
        not_negative("every noise level", level)
    split = in_order(split, network.feature_names)
    X, y = split.test or (split.X, split.y)
    part = known_part(X, y, network.classes, network.n_features, network.dtype)
    record = new_record("evaluation", {"data": split.name, "noise": list(noise)}, seed=0)
    record["part"] = "test" if split.test else "data"
    record["samples"] = len(part.y)
    record["result"] = error_rates(network, part.X, part.y) | counts(network)
    if noise:
        errors = []
        for k, level in enumerate(noise):
            if not quiet:
                say(f"noise {level:g}, level {k + 1} of {len(noise)}")
            errors += noise_errors(network, part.X, part.y, [level])["errors"]
        record["result"]["noise"] = {"levels": list(noise), "errors": errors}
    return record


def print_evaluation(record: dict[str, Any]) -> None:
    """In a few lines."""
    result, operations = record["result"], record["result"]["operations"]
    print(f"{record['part']} error {100 * result['error']:.2f}% of {record['samples']} samples")
    if "top5_error" in result:
        print(f"top-5 error {100 * result['top5_error']:.2f}%")
    units = "-".join(map(str, result["active_units"])) or "no"
    print(
        f"{units} active hidden units, {result['parameters']:,} parameters; a prediction takes "
        f"{operations['macs']:,} multiply-adds and {operations['additions']:,} additions (with "
        f"1-bit weights {operations['word_operations']:,} operations on words)"
    )
    noise = result.get("noise", {"levels": [], "errors": []})
    for level, error in zip(noise["levels"], noise["errors"], strict=True):
        print(f"noise {level:g}: error {100 * error:.2f}%")
