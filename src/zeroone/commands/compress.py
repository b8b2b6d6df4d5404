"""``zeroone compress``: a smaller model."""

from pathlib import Path
from typing import Any

from zeroone.commands.checks import check_output
from zeroone.commands.evaluate import evaluate_network
from zeroone.data.load import in_order, load_data
from zeroone.data.splits import Split
from zeroone.deploy import IntegerModel, IntegerNetwork, load, quantise
from zeroone.deploy.compress import compress as remove_unused
from zeroone.deploy.files import model_file
from zeroone.nn.inputs import check_inputs
from zeroone.nn.network import Network
from zeroone.utils.checks import InputError, one_of, printable
from zeroone.utils.records import new_record, write_record

FORMS = ("int8", "float")


def compress(
    model: Path,
    *,
    out: Path,
    to: str = "int8",
    data: str | None = None,
    data_dir: Path | None = None,
    label: str | None = None,
    json: Path | None = None,
) -> None:
    """Write a smaller MODEL: no dead units, int8 weights, int32 thresholds.

    zeroone predict, zeroone evaluate and zeroone.load take it like any other; it runs in ONNX
    Runtime.

    Example: zeroone compress runs/digits --out digits-int8.safetensors --data digits

    Args:
        out: the file of the smaller model.
        to: the form: int8, or float to remove units only.
        data: data of the model's kind, to compare errors, and to find the range of the inputs if
            the model does not know it.
    """
    source = model_file(model)
    check_output(out, source, data, ending=".safetensors")
    check_output(json, source, data, out)
    one_of("form", to, FORMS)
    before, split = load(source), None
    if isinstance(before, IntegerModel):
        raise InputError(f"{source} is a model of integers already.")
    if data is not None:
        numbers = before.targets.are_numbers
        split = load_data(data, data_dir=data_dir, label=label, numbers=numbers)
    small = remove_unused(before) if to == "float" else IntegerModel(as_integers(before, split))
    record = new_record("compress", {"model": str(source), "form": to}, seed=0)
    record["result"] = {"widths": [widths(before), widths(small)]}
    if split is not None:  # before anything is written: the data may not fit the model
        record["data"] = split.name
        record["result"] |= _compare(before, small, split)
    small.save(out)
    record["result"]["bytes"] = [source.stat().st_size, out.stat().st_size]
    _print(record, out)
    if json is not None:
        write_record(json, record)


def as_integers(model: Network | IntegerModel, split: Split | None = None) -> IntegerNetwork:
    """Return the integer form of a model; ``split`` shows the range of its inputs if need be."""
    if isinstance(model, IntegerModel):
        return model.network
    like = None
    if split is not None and model.scaling.inputs is None:
        like = check_inputs(in_order(split, model.feature_names).X, model.dtype)
    return quantise(model, like)


def widths(model: Network | IntegerModel) -> list[int]:
    """Count the inputs, the bits (or maps of bits) of each layer, and the classes."""
    if isinstance(model, Network):
        first = model.backbone.n_features if model.backbone else model.scaling.n_taken
        return [first, *(layer.shape_out[0] for layer in model.layers)]
    network = model.network
    return [network.inputs.n_taken, *(stage.shape_out[0] for stage in network.stages)]


def _compare(model: Network, small: Network | IntegerModel, split: Split) -> dict[str, Any]:
    """Compare the errors of both on the test part, if there is one, and how often they agree."""
    named = in_order(split, model.feature_names)
    X, y = named.test or (named.X, named.y)
    errors = [evaluate_network(m, named)["result"]["error"] for m in (model, small)]
    same = (model.predict(X) == small.predict(X)).reshape(len(y), -1).all(axis=1)
    return {"errors": errors, "agree": float(same.mean()), "samples": len(y)}


def _print(record: dict[str, Any], out: Path) -> None:
    result = record["result"]
    before, after = result["bytes"]
    shapes = ["-".join(map(str, w)) for w in result["widths"]]
    print(f"{printable(out)}: {after:,} bytes, {before / after:.1f} times smaller than {before:,}")
    print(f"{shapes[0]} became {shapes[1]}")
    if "errors" in result:
        old, new = (100 * error for error in result["errors"])
        print(
            f"error {old:.2f}% before, {new:.2f}% after, on {result['samples']:,} samples of "
            f"{printable(record['data'])}; {100 * result['agree']:.2f}% of the answers agree"
        )
    elif record["settings"]["form"] == "int8":
        print("the errors of the smaller model are not known: --data compares them")
