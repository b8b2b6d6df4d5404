"""``zeroone evaluate``: what the one judge says of a network on some data."""

from collections.abc import Sequence
from typing import Any

import torch

from zeroone.analysis.counts import counts
from zeroone.analysis.metrics import TOP, classes_ahead, error_rates, noise_errors
from zeroone.data.load import in_order
from zeroone.data.splits import Split, encode_known_labels
from zeroone.deploy import IntegerModel
from zeroone.nn.network import Network
from zeroone.training.text_progress import say
from zeroone.training.training_data import known_part
from zeroone.utils.checks import InputError, not_negative
from zeroone.utils.records import new_record


def evaluate_network(
    network: Network | IntegerModel,
    split: Split,
    noise: Sequence[float] = (),
    *,
    quiet: bool = True,
) -> dict[str, Any]:
    """The record of a network's errors, clean and in noise, and of its size.

    On the test part, if there is one.
    """
    for level in noise:
        not_negative("every noise level", level)
    if isinstance(network, IntegerModel):
        return _evaluate_integers(network, split, noise)
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
            errors += noise_errors(network, part.X[:], part.y, [level])["errors"]
        record["result"]["noise"] = {"levels": list(noise), "errors": errors}
    return record


def _evaluate_integers(model: IntegerModel, split: Split, noise: Sequence[float]) -> dict[str, Any]:
    """The same of a model of integers, which takes no noise: its inputs are cut to bytes."""
    if noise:
        raise InputError("noise is for networks of floating point numbers, not of integers.")
    split = in_order(split, model.feature_names)
    X, y = split.test or (split.X, split.y)
    codes = encode_known_labels(y, model.classes, len(X))
    ahead = classes_ahead(torch.from_numpy(model.scores(X)), codes)
    record = new_record("evaluation", {"data": split.name, "noise": []}, seed=0)
    record["part"], record["samples"] = "test" if split.test else "data", len(codes)
    result: dict[str, Any] = {"error": float((ahead > 0).float().mean())}
    if len(model.classes) > TOP:
        result["top5_error"] = float((ahead >= TOP).float().mean())
    return record | {"result": result | {"bytes": model.network.n_bytes}}


def print_evaluation(record: dict[str, Any]) -> None:
    """In a few lines."""
    result = record["result"]
    print(f"{record['part']} error {100 * result['error']:.2f}% of {record['samples']} samples")
    if "top5_error" in result:
        print(f"top-5 error {100 * result['top5_error']:.2f}%")
    if "bytes" in result:
        print(f"{result['bytes']:,} bytes of int8 weights and int32 thresholds")
        return
    operations = result["operations"]
    units = "-".join(map(str, result["active_units"])) or "no"
    print(
        f"{units} active hidden units, {result['parameters']:,} parameters; a prediction takes "
        f"{operations['macs']:,} multiply-adds and {operations['additions']:,} additions (with "
        f"1-bit weights {operations['word_operations']:,} operations on words)"
    )
    noise = result.get("noise", {"levels": [], "errors": []})
    for level, error in zip(noise["levels"], noise["errors"], strict=True):
        print(f"noise {level:g}: error {100 * error:.2f}%")
