"""Test errors of stochastic BCD and its rivals: same data, widths, batches, epochs, one run.

    python benchmarks/accuracy.py --suite mlp --seeds 3 --epochs 10 --json results/accuracy_mlp.json

Suites: ``mlp`` (MNIST and Fashion-MNIST, 784-1000-1000-10), ``small`` (digits, breast cancer with
the defaults, 5-fold, against scikit-learn's MLPClassifier with its own), ``rules`` (every U rule on
MNIST, 784-500-500-10), ``conv`` (MNIST, 0/1 convolutional networks, end to end), ``features``
(MNIST and Fashion-MNIST, 576-2000-2000-10 on a backbone after pretraining), ``cifar10`` and
``cifar100`` (512-1500-1500 on a ResNet-18), ``deep`` (CIFAR-10 and CIFAR-100, six convolutions with
four thresholds a filter, end to end), ``conv-bits`` (three with four, MNIST and Fashion-MNIST),
``zoo`` (the networks of the model zoo), ``depth`` (streams of 4 to 32 layers, chains of 4 and 8),
``bits`` (filters and thresholds at equal cost). Our settings were tuned on a validation part.
They are run matrices (see ``zeroone matrix``): cells run side by side, one thread each, and every
finished one is kept at once in the folder OUT.cells, one that fails with its reason. ``--resume``
goes on with the missing and the failed ones, ``--only-failed`` with these alone. ``--models`` keeps
the networks that BCD trains, each as it is finished.
"""

import argparse
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import begin, finish, parser
from paper.matrix.live_table import live_table
from paper.matrix.matrix import Matrix
from paper.matrix.methods import Method
from paper.matrix.run import FAILED, Run, execute
from paper.matrix.spec import Spec
from paper.matrix.tables import failures, print_summary, summarise
from paper.matrix.validate_record import is_errors
from paper.matrix.workers import fitting_jobs
from zeroone.data.registry import REGISTRY
from zeroone.training import Callback

# The better rate of 1e-3 and 3e-3 on a validation part of MNIST after 5 epochs, for each of them.
RATE = 3e-3
# On Fashion-MNIST the validation part did not tell the two rates apart: both are shown.
SLOW = {
    "ste-slow": {"method": "ste", "learning_rate": 1e-3, "label": "STE, 0/1, 1e-3"},
    "ste-bn-slow": {
        "method": "ste-bn",
        "learning_rate": 1e-3,
        "label": "STE, 0/1, BatchNorm, 1e-3",
    },
}
# On the features of a small backbone, for all methods alike. Compared with the usual 0.2 it was
# better for ReLU on validation parts of Fashion-MNIST, too; on MNIST's within the noise of 10,000
# images.
FEWER_DROPPED = {"input_dropout": 0.1}
# Six convolutions on CIFAR-10. Settings and the baselines' rates, out of 1e-3, 3e-3 and 1e-2, were
# chosen on 5,000 of the training images in shorter trainings of fewer filters (docs/notebook.md).
DEEP = {"augment": "crop-flip", "epochs": 8, "bf16": True}
DEEP_BCD = {"momentum": 0.9, "move": 0.035, "damping": 0.003}
DEEP_BASELINES = {"warmup": 0.2, "weight_decay": 0.01, "learning_rate": 1e-2}
WITH_NORM = ("relu-bn", "ste-bn", "bi-real-bn")
DEPTHS = {"stream": (4, 8, 16, 32), "chain": (4, 8)}
PLAIN = {
    "method": "relu",
    "label": "ReLU, no regularisers",
    "learning_rate": 1e-3,
    "smoothing": 0.0,
    "input_dropout": 0.0,
}
SMALL = {
    "bcd": Method("0/1 BCD", baseline=False),
    "mlp": Method("MLPClassifier", baseline=True),
    # It does not scale its inputs and ours does: a row for those who would.
    "scaled-mlp": Method("StandardScaler + MLPClassifier", baseline=True),
}


def mlp(data: tuple[str, ...], methods: tuple[str, ...], **variants: Any) -> Spec:
    rivals = {"learning_rate": RATE}
    return Spec(data, ("f3nn:1000-1000",), methods, baselines=rivals, variants=variants)


def on_backbone(
    data: str,
    *architectures: str,
    more: tuple[str, ...] = (),
    train: dict[str, Any] | None = None,
    **initial: Any,
) -> Spec:
    methods = ("bcd", *more, "ste", "relu")
    return Spec((data,), architectures, methods, pretraining=initial, train=train or {})


def on_small_backbone(data: str, *architectures: str) -> Spec:
    return on_backbone(data, *architectures, train=FEWER_DROPPED, batch=64)


def against_norm(architecture: str, data: str, train: dict[str, Any], **bcd: Any) -> Spec:
    """Compare layers of bits with baselines that have BatchNorm and a one-cycle rate."""
    settings = {"bcd": DEEP_BCD | bcd, "baselines": DEEP_BASELINES}
    return Spec((data,), (architecture,), ("bcd", *WITH_NORM), train=train, **settings)


def towers(kind: str, depth: int) -> Spec:
    """Train a stream or a chain of so many layers; chains have been tried with this move only."""
    bcd = DEEP_BCD | {"move": {"stream": 0.055, "chain": 0.08}[kind]}
    train = DEEP | {"epochs": 3}
    return Spec(("cifar10",), (f"{kind}-{depth}",), ("bcd",), train=train, bcd=bcd)


def rules() -> Spec:
    variants = {rule: {"method": "bcd", "u_rule": rule} for rule in ("expected", "drawn", "half")}
    return Spec(("mnist",), ("f3nn:500-500",), tuple(variants), variants=variants)


CONV_BITS = (
    against_norm("conv-bits", "mnist", {"bf16": True}, move=0.05),
    # Chosen on a validation part (docs/notebook.md).
    against_norm("conv-bits", "fashion-mnist", {"bf16": True, "augment": "flip", "epochs": 8}),
)
SUITES = {
    "mlp": [
        mlp(("mnist", "fashion-mnist"), ("bcd", "ste", "ste-bn", "relu")),
        mlp(("fashion-mnist",), tuple(SLOW), **SLOW),
        mlp(("mnist",), ("bcd-hardmax", "bcd-half", "plain"), plain=PLAIN),
    ],
    "rules": [rules()],
    "conv": [
        Spec(("mnist",), ("lenet",), ("bcd", "ste", "relu")),
        # For ReLU and STE the best of 1e-3, 3e-3 and 1e-2 on a validation part (docs/notebook.md).
        Spec(("mnist",), ("lenet",), WITH_NORM, baselines={"learning_rate": 1e-2}),
    ],
    "features": [
        on_small_backbone("mnist", "convnet@5"),
        on_small_backbone("fashion-mnist", "convnet@2", "convnet@5"),
    ],
    "cifar10": [on_backbone("cifar10", "resnet18@10", more=("bcd-hardmax",), batch=128)],
    "deep": [
        against_norm("deep-32x4", "cifar10", DEEP),
        against_norm("deep-32x4", "cifar100", DEEP),
    ],
    "conv-bits": list(CONV_BITS),
    "zoo": [
        against_norm("conv-bits", "mnist", {"bf16": True, "epochs": 5}, move=0.05),
        CONV_BITS[1],
        against_norm("deep-32x4", "cifar10", DEEP),
    ],
    "depth": [towers(kind, depth) for kind in ("stream", "chain") for depth in DEPTHS[kind]],
    "bits": [
        Spec(
            ("cifar10",),
            ("deep-16x1", "deep-16x2", "deep-16x3", "deep-23x1", "deep-28x1"),
            ("bcd",),
            train=DEEP | {"epochs": 2},
            bcd=DEEP_BCD | {"move": 0.05},
        )
    ],
    "cifar100": [on_backbone("cifar100", "resnet18@10", batch=128)],
    "small": [],
}


class Folds(Run):
    """Five-fold cross-validation with a classifier's defaults; its seed is the repetition."""

    seed = property(lambda self: self.repetition)

    def describe(self) -> dict[str, Any]:
        """Not trained by the loop: only this counts."""
        return {"folds": 5, "classifier": SMALL[self.method].label}

    def can_have_written(self, record: dict[str, Any]) -> bool:
        """There is one error, and no training to look at."""
        if record.get("status") == FAILED:
            return super().can_have_written(record)
        return is_errors([record.get("result", {}).get("test_error")], [self])


def five_fold(cell: Run, _callbacks: Any) -> dict[str, Any]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from zeroone import ZeroOneClassifier
    from zeroone.data.load import load_data

    seed = cell.seed
    X, y = load_data(cell.data).everything
    theirs = MLPClassifier(random_state=seed)
    model = {
        "bcd": ZeroOneClassifier((256, 256), random_state=seed),
        "mlp": theirs,
        "scaled-mlp": make_pipeline(StandardScaler(), theirs),
    }[cell.method]
    warnings.simplefilter("ignore", ConvergenceWarning)  # 200 iterations are its default
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    error = 1 - float(cross_val_score(model, X, y, cv=folds).mean())
    record = cell.new_record() | {"status": "completed", "result": {"test_error": error}}
    return {"record": record, "seconds": []}


class Latest(Callback):
    """Remembers the network."""

    model: Any = None

    def on_iteration(self, _entry: dict[str, Any], model: Any) -> None:
        self.model = model


def execute_and_keep(folder: Path, cell: Run, callbacks: Any) -> dict[str, Any]:
    """Train, and keep the network in a folder."""
    latest = Latest()
    done = execute(cell, (*callbacks, latest))
    if not cell.baseline and latest.model is not None:
        name = f"{cell.data}-{cell.architecture}-{cell.method}-{cell.seed}.safetensors"
        latest.model.save(folder / name)
    return done


def make_cells(options: argparse.Namespace) -> Iterable[Run]:
    """Seeds 0, 1, ... for every row alike, as all records of this benchmark have had them."""
    if options.suite == "small":
        for seed in range(options.seeds):
            for data in ("digits", "breast-cancer"):
                yield from (Folds(data, "f3nn:256-256", method, seed) for method in SMALL)
    common = {"epochs": options.epochs, "batch": 256}
    for spec in SUITES[options.suite]:
        train = common | spec.train
        train["epochs"] = min(train["epochs"], options.epochs)
        yield from replace(spec, seeds=options.seeds, paired=True, train=train).runs()


def labels(options: argparse.Namespace) -> dict[str, Method]:
    known = dict(SMALL) if options.suite == "small" else {}
    for spec in SUITES[options.suite]:
        known |= spec.known_methods
    return known


def cells_folder(options: argparse.Namespace) -> Path:
    """Where the cells are kept until all of them are done."""
    going_on = options.resume or options.only_failed
    if options.json is None:
        if going_on:
            sys.exit("--resume and --only-failed need the record of the unfinished run: --json OUT")
        return Path(tempfile.mkdtemp(prefix="zeroone-accuracy-"))
    folder = options.json.with_suffix(".cells")
    if going_on and not folder.is_dir():
        sys.exit(f"there is no unfinished run in {folder}")
    if not going_on and folder.is_dir():
        sys.exit(f"{folder} holds an unfinished run: --resume goes on with it, or remove it")
    return folder


def as_entries(matrix: Matrix) -> list[dict[str, Any]]:
    """One entry a cell, for the record."""
    times = matrix.times()
    entries = []
    for cell, record in matrix.records.items():
        entry = cell.key | {"seed": record["seed"], "commit": record["commit"]}
        if record["status"] == FAILED:
            entry["failed"] = record["reason"]
        else:
            entry |= record["result"] | {"seconds_per_epoch": times.get(cell)}
            entry["history"] = [h["test_error"] for h in record.get("history", [])]
        entries.append(entry)
    return entries


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=None, threads=None)
    arguments.formatter_class = argparse.RawDescriptionHelpFormatter
    arguments.add_argument("--suite", choices=SUITES, default="mlp")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--epochs", type=int, default=10)
    arguments.add_argument("--data", help="only this data set")
    arguments.add_argument("--methods", help="only these, such as bcd,relu")
    arguments.add_argument("--jobs", type=int, help="cells at a time (default: one a core)")
    arguments.add_argument("--models", type=Path, help="keep the networks of BCD in this folder")
    arguments.add_argument("--resume", action="store_true", help="keep the finished cells")
    arguments.add_argument("--only-failed", action="store_true", help="only those that failed")
    options = arguments.parse_args()
    wanted = options.methods.split(",") if options.methods else None
    cells = [
        cell
        for cell in make_cells(options)
        if options.data in (None, cell.data) and (wanted is None or cell.method in wanted)
    ]
    if not cells:
        sys.exit(f"the suite {options.suite} has no such data set or methods")
    for name in {cell.data for cell in cells} & set(REGISTRY):
        REGISTRY[name].get()
    record = begin(f"accuracy-{options.suite}", options)
    folder = cells_folder(options)
    matrix = Matrix.open(cells, folder)
    todo = matrix.failed if options.only_failed else matrix.missing + matrix.failed
    work = five_fold if options.suite == "small" else execute
    if options.models and options.suite != "small":
        options.models.mkdir(parents=True, exist_ok=True)
        work = partial(execute_and_keep, options.models)
    with live_table(matrix, len(todo)) as watch:
        matrix.run(todo, jobs=fitting_jobs(options.jobs, 1), work=work, watch=watch)
    record["cells"] = as_entries(matrix)
    record["log"] = matrix.log()
    record["table"] = summarise(matrix, labels(options))
    print_summary(record["table"])
    finish(record, options.json)
    for sentence in failures(record["table"]):
        print(f"failed: {sentence}", file=sys.stderr)
    if options.json and (matrix.failed or matrix.missing):
        sys.exit("some cells have no result: --resume or --only-failed runs them")
    shutil.rmtree(folder)
    if matrix.failed:
        sys.exit("some cells have no result")


if __name__ == "__main__":
    main()
