"""``zeroone report``: training runs side by side on one HTML page."""

import base64
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zeroone.commands.checks import check_output, set_threads
from zeroone.commands.figures import COLOURS, Line, line_chart
from zeroone.data.load import load_data
from zeroone.data.splits import Split, stratified_cut
from zeroone.nn.functional import classify
from zeroone.nn.network import Network
from zeroone.nn.network_file import load
from zeroone.nn.operators import Shape
from zeroone.training.checkpoint import MODEL, RECORD
from zeroone.training.text_progress import PARTS, percent, say
from zeroone.training.training_data import Subset, known_part
from zeroone.utils.checks import InputError, need_extra, printable
from zeroone.utils.records import read_record
from zeroone.utils.storage import replacing
from zeroone.version import __version__

MISTAKES, CONFUSIONS = 24, 20  # how many the page shows
TERMS = ("F", "loss", "sparsity", "ridge", "coupling", "activation")


def report(
    runs: tuple[Path, ...],
    *,
    out: Path = Path("report.html"),
    data: tuple[str, ...] = (),
    data_dir: Path | None = None,
    label: str | None = None,
    threads: int | None = None,
    quiet: bool = False,
) -> None:
    """Write one self-contained HTML page about one or several RUNS, side by side.

    A run is the folder of a training, or a record. The page shows errors, curves, active units,
    flipped bits, confusions, the worst mistakes, settings and the machine. It opens from the file
    system and makes no network requests.

    Example: zeroone report runs/digits runs/other --out report.html

    Args:
        out: the page.
        data: the data of the runs, if they have moved: once, or once for each run.
    """
    set_threads(threads)
    check_output(out, *runs, *data, ending=".html")
    if len(data) not in (0, 1, len(runs)):
        raise InputError(f"data are given once or once a run: {len(data)} for {len(runs)} runs.")
    sources = data if len(data) == len(runs) else (*data, None)[:1] * len(runs)
    template = _template()  # before the work, in case an extra is not installed
    read = []
    for k, (path, source) in enumerate(zip(runs, sources, strict=True)):
        if not quiet and len(runs) > 1:
            say(f"{path}, run {k + 1} of {len(runs)}")
        read.append(read_run(path, data=source, data_dir=data_dir, label=label))
    text = template.render(
        runs=read,
        version=__version__,
        charts=_charts(read),
        colours=COLOURS,
        settings=_side_by_side(read),
        parts=[p for p in PARTS if any(f"{p}_error" in run.record["result"] for run in read)],
    )
    with replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"report: {printable(out)}")


def _template() -> Any:
    need_extra("pages", "matplotlib")
    jinja2 = need_extra("pages", "jinja2")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"percent": percent, "count": "{:,.0f}".format}
    return environment.get_template("report.html")


@dataclass(frozen=True)
class Evaluation:
    """What a network answers on a part of its data."""

    part: str
    classes: list[str]
    confusion: list[list[int]]  # truth down, guess across
    mistakes: list[dict[str, Any]]  # the surest ones, surest first

    @property
    def frequent(self) -> list[tuple[str, str, int]]:
        """The most frequent confusions: truth, guess, count."""
        found = [
            (truth, guess, n)
            for truth, row in zip(self.classes, self.confusion, strict=True)
            for guess, n in zip(self.classes, row, strict=True)
            if n and guess != truth
        ]
        return sorted(found, key=lambda pair: -pair[2])[:CONFUSIONS]


@dataclass(frozen=True)
class Run:
    """A run's record and its evaluation, or why there is none."""

    name: str
    record: dict[str, Any]
    evaluation: Evaluation | None = None
    missing: str | None = None


def read_run(path: Path, *, data: str | None, data_dir: Path | None, label: str | None) -> Run:
    """Read a run from its folder, or from its record; only ``data`` that are given must fit."""
    record_path = path / RECORD if path.is_dir() else path
    if not record_path.is_file():
        raise InputError(f"there is no record {record_path}: give the folder of a finished run.")
    record = read_record(record_path)
    model = record_path.with_name(MODEL)
    if record_path.name != RECORD or not model.is_file():
        return Run(str(path), record, missing="There is no model beside the record.")
    network = load(model)
    if not network.targets.one_class:
        return Run(str(path), record, missing="Its network does not choose one class per sample.")
    try:
        name = data or record["data"].get("name")
        if name is None:
            raise InputError("the record does not name them; use --data.")
        split = load_data(name, data_dir=data_dir, label=label)
        part_name, part = _part_of_the_run(record, network, split)
    except InputError as error:
        if data is not None:
            raise
        return Run(str(path), record, missing=f"Its data were not found: {error}")
    return Run(str(path), record, evaluate(network, part, split, part_name))


def _part_of_the_run(record: dict[str, Any], network: Network, split: Split) -> tuple[str, Subset]:
    """Find the run's test part by its fingerprint, or else its validation or training part."""
    digests = record["data"].get("sha256") or {}
    held_out = record["settings"].get("validation")
    for name, labelled in (("test", split.test), ("train", (split.X, split.y))):
        if labelled is None or name not in digests:
            continue
        part = known_part(*labelled, network.classes, network.n_features, network.dtype)
        if name == "train" and held_out:
            _, cut = stratified_cut(part.y.numpy(), held_out, record["seed"])
            name, part = "validation", part.rows(cut)  # noqa: PLW2901
        if part.digest == digests.get(name):
            return name, part
    raise InputError(f"{split.name} holds other samples or labels than those of the run.")


def evaluate(network: Network, part: Subset, split: Split, name: str) -> Evaluation:
    """Evaluate a network on a part of the data.

    ``split`` gives the names of classes and the shape of images, ``name`` is that of the part.
    """
    scores, n = network.scores(part.X[:]), len(network.classes)
    guesses, known = classify(scores), part.y >= 0
    pairs = part.y[known] * n + guesses[known]
    confusion = torch.bincount(pairs, minlength=n**2).reshape(n, n)
    names = [split.class_name(label) for label in network.classes]
    wrong = torch.nonzero((guesses != part.y) & known)[:, 0]
    sure = network.head.probabilities(scores)[wrong, guesses[wrong]]
    worst = torch.argsort(sure, descending=True, stable=True)[:MISTAKES]
    high = 255.0 if part.X.dtype == torch.uint8 else float(part.X[:].max())
    mistakes = [
        {
            "sample": k,
            "truth": names[int(part.y[k])],
            "guess": names[int(guesses[k])],
            "probability": probability,
            "image": _image(part.X[k] / high, split.shape),
        }
        for k, probability in zip(wrong[worst].tolist(), sure[worst].tolist(), strict=True)
    ]
    return Evaluation(name, names, confusion.tolist(), mistakes)


def _image(sample: Tensor, shape: Shape | None) -> str | None:
    """Encode a sample with values from 0 to 1 as a PNG image, if it has three axes."""
    if shape is None or len(shape) != 3:
        return None
    pixels = (255 * sample.double()).clamp(0, 255).byte().reshape(shape).permute(1, 2, 0).numpy()
    image = pixels[..., 0] if shape[0] < 3 else np.ascontiguousarray(pixels[..., :3])
    buffer = io.BytesIO()
    need_extra("pages", "PIL.Image").fromarray(image).save(buffer, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _charts(runs: Sequence[Run]) -> list[tuple[str, list[Line], str]]:
    """Draw the curves of all runs, then those of each run's layers: captions, lines, images."""
    errors, losses, charts = list[Line](), list[Line](), list[tuple[str, list[Line], bool]]()
    for colour, run in enumerate(runs):
        history, of = run.record["history"], f", {run.name}" if len(runs) > 1 else ""
        scored = "test" if "test_error" in history[-1] else "validation"
        for part in ("train", scored):
            values = _values((entry.get(f"{part}_error") for entry in history), 100)
            errors.append(Line(f"{run.name}: {part}", values, colour, dashed=part == "train"))
        losses.append(Line(run.name, _values(entry.get("loss") for entry in history), colour))
        if "F" in history[-1]:
            terms = [_values(entry.get(term) for entry in history) for term in TERMS]
            lines = [Line(term, terms[k], k) for k, term in enumerate(TERMS)]
            charts.append((f"Objective by term{of}", lines, True))
        units = ("Active units", "active_units", 1)
        for caption, key, factor in (units, ("Bits flipped in %", "flipped", 100)):
            layers = zip_longest(*(entry.get(key) or () for entry in history))
            curves = [_values(layer, factor) for layer in layers]
            lines = [Line(f"layer {k + 1}", curve, k) for k, curve in enumerate(curves)]
            charts.append((f"{caption}{of}", lines, False))
    charts = [("Error in % (dashed: training)", errors, True), ("Loss", losses, True), *charts]
    return [
        (caption, lines, line_chart(lines, log=log))
        for caption, lines, log in charts
        if any(np.isfinite(line.values).any() for line in lines)
    ]


def _values(numbers: Iterable[float | None], factor: float = 1.0) -> list[float]:
    """Return multiples of numbers, NaN for those that are missing."""
    return [math.nan if number is None else factor * float(number) for number in numbers]


def _side_by_side(runs: Sequence[Run]) -> list[tuple[str, list[str], bool]]:
    """One row for each setting: the value of each run, and whether they differ."""
    columns = []
    for record in (run.record for run in runs):
        pretraining = record.get("initial") or {"settings": {}}
        known = {"plan": record.get("plan") or {}, "initial": pretraining["settings"]}
        known |= {name: record.get(name, "") for name in ("machine", "commit", "date")}
        columns.append(dict(_flat(record["settings"] | known)))
    rows = []
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [column.get(name, "") for column in columns]
        rows.append((name, values, len(set(values)) > 1))
    return rows


def _flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Flatten settings into names such as stochastic.epochs; None is what the solver chose."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield prefix + name, ", ".join(map(str, value)) or "none"
        else:
            yield prefix + name, "default" if value is None else str(value)
