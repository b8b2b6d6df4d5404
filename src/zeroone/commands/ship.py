"""``zeroone compress`` and ``zeroone export``: smaller and other forms of a model."""

from pathlib import Path
from typing import Any

import numpy as np

from zeroone.data.load import in_order
from zeroone.data.splits import Split, encode_known_labels
from zeroone.deploy import IntegerModel, IntegerNetwork, load, quantise
from zeroone.deploy.compress import compress
from zeroone.deploy.exporters import exporters
from zeroone.nn.inputs import check_inputs
from zeroone.nn.network import Network
from zeroone.nn.operators import Shape
from zeroone.utils.checks import InputError, one_of
from zeroone.utils.records import new_record

FORMS = ("int8", "float")


def as_integers(model: Network | IntegerModel, split: Split | None = None) -> IntegerNetwork:
    """The integer form of a model; ``split`` shows what inputs look like if it does not say."""
    if isinstance(model, IntegerModel):
        return model.network
    like = None
    if split is not None and model.scaling.inputs is None:
        like = check_inputs(in_order(split, model.feature_names).X, model.dtype)
    return quantise(model, like)


def compress_model(path: Path, out: Path, form: str, split: Split | None) -> dict[str, Any]:
    """Write the smaller model; gives the record of what became of it."""
    one_of("form", form, FORMS)
    model = load(path)
    if isinstance(model, IntegerModel):
        raise InputError(f"{path} is a model of integers already.")
    small = compress(model) if form == "float" else IntegerModel(as_integers(model, split))
    record = new_record("compress", {"model": str(path), "form": form}, seed=0)
    record["result"] = {"widths": [widths(model), widths(small)]}
    if split is not None:  # may find that they are not the model's: before anything is written
        record["data"] = split.name
        record["result"] |= _compare(model, small, split)
    small.save(out)
    record["result"]["bytes"] = [path.stat().st_size, out.stat().st_size]
    return record


def widths(model: Network | IntegerModel) -> list[int]:
    """Inputs, units (or filters) of each layer, classes."""
    if isinstance(model, Network):
        first = model.body.n_features if model.body else model.scaling.n_taken
        return [first, *(op.n_out for op in model.operators)]
    network = model.network
    return [network.inputs.n_taken, *(stage.main.n_out for stage in network.stages)]


def _compare(model: Network, small: Network | IntegerModel, split: Split) -> dict[str, Any]:
    """The errors of both on the test part, if there is one, and how often they agree."""
    named = in_order(split, model.feature_names)
    X, y = named.test or (named.X, named.y)
    truth = encode_known_labels(y, model.classes, len(X)).numpy()
    before, after = (np.asarray(m.scores(X)).argmax(axis=1) for m in (model, small))
    return {
        "errors": [float((codes != truth).mean()) for codes in (before, after)],
        "agree": float((before == after).mean()),
        "samples": len(truth),
    }


def print_compressed(record: dict[str, Any], out: Path) -> None:
    """In a few lines."""
    result = record["result"]
    before, after = result["bytes"]
    shapes = ["-".join(map(str, w)) for w in result["widths"]]
    print(f"{out}: {after:,} bytes, {before / after:.1f} times smaller than {before:,}")
    print(f"{shapes[0]} became {shapes[1]}")
    if "errors" in result:
        old, new = (100 * error for error in result["errors"])
        print(
            f"error {old:.2f}% before, {new:.2f}% after, on {result['samples']:,} samples of "
            f"{record['data']}; {100 * result['agree']:.2f}% of the answers agree"
        )
    elif record["settings"]["form"] == "int8":
        print("what that does to the errors is not known: --data compares them")


def export_model(
    path: Path, to: str, out: Path, split: Split | None, image: Shape | None
) -> list[str]:
    """Write an export; gives what to say about it."""
    known = exporters()
    exporter = known[one_of("export", to, known)]
    if out.suffix != exporter.suffix:
        raise InputError(f"an export to {to} is a {exporter.suffix} file, not {out.name}.")
    if image is not None and not exporter.takes_image:
        others = " or ".join(f"--to {name}" for name, other in known.items() if other.takes_image)
        raise InputError(f"--image is for {others}.")
    options = {} if image is None else {"image": image}
    return exporter.write(as_integers(load(path), split), out, **options)
