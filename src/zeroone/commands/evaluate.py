"""``zeroone evaluate``: the errors and the size of a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from zeroone.analysis.counts import counts
from zeroone.analysis.metrics import error_rates, noise_errors
from zeroone.commands.checks import check_output, numbers, set_threads
from zeroone.data.load import in_order, load_data
from zeroone.data.splits import Split
from zeroone.deploy import IntegerModel, load
from zeroone.nn.network import Network
from zeroone.training.text_progress import say
from zeroone.training.training_data import known_part
from zeroone.utils.checks import InputError, not_negative
from zeroone.utils.records import new_record, write_record


def evaluate(
    model: Path,
    *,
    data: str,
    data_dir: Path | None = None,
    label: str | None = None,
    noise: str | None = None,
    json: Path | None = None,
    threads: int | None = None,
    quiet: bool = False,
) -> None:
    """Print the errors and the size of a MODEL (a file or a run's folder) on data.

    If the data have a test part, the errors are those of the test part. Noise is a share of the
    range of bytes (pixels); for other inputs, of the spread by which the network scales them.

    Example: zeroone evaluate runs/digits --data digits --noise 0,0.5,1

    Args:
        noise: standard deviations of Gaussian noise on the inputs, such as 0,0.1,0.2.
    """
    set_threads(threads)
    check_output(json, data, model)
    levels = () if noise is None else numbers("--noise", noise, "numbers such as 0,0.1,0.2", float)
    network = load(model)
    continuous = network.targets.are_numbers
    split = load_data(data, data_dir=data_dir, label=label, numbers=continuous)
    record = evaluate_network(network, split, levels, quiet=quiet)
    print_evaluation(record)
    if json is not None:
        write_record(json, record)


def evaluate_network(
    network: Network | IntegerModel,
    split: Split,
    noise: Sequence[float] = (),
    *,
    quiet: bool = True,
) -> dict[str, Any]:
    """Return a record of a network's size and its errors on the test part, or on all samples."""
    for level in noise:
        not_negative("every noise level", level)
    split = in_order(split, network.feature_names)
    X, y = split.test or (split.X, split.y)
    record = new_record("evaluation", {"data": split.name, "noise": list(noise)}, seed=0)
    record |= {"part": "test" if split.test else "data", "samples": len(y)}
    if isinstance(network, IntegerModel):
        if noise:
            raise InputError("noise is for networks of floating point numbers, not of integers.")
        truth = network.targets.encode_known(y, network.classes, len(X))
        sums = network.targets.tally(torch.from_numpy(network.scores(X)), truth)
        errors = network.targets.rates(sums.tolist(), len(X))
        return record | {"result": errors | {"bytes": network.network.n_bytes}}
    part = known_part(X, y, network.classes, network.n_features, network.dtype, network.targets)
    result = error_rates(network, part.X, part.y) | counts(network)
    if noise:
        if not quiet:
            say(f"{len(noise)} levels of noise on {len(y)} samples")
        result["noise"] = noise_errors(network, part.X[:], part.y, noise)
    return record | {"result": result}


def print_evaluation(record: dict[str, Any]) -> None:
    """Print the record of an evaluation in a few lines."""
    result = record["result"]
    if "r2" in result:
        print(f"{record['part']} R^2 {result['r2']:.4f} on {record['samples']} samples")
    else:
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
