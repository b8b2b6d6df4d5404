"""Calibration of ``predict_proba``: with label smoothing undone, as it was, and without smoothing.

    python benchmarks/calibration.py --json results/calibration.json

5-fold cross-validation of ``ZeroOneClassifier`` with its defaults; of MNIST and Fashion-MNIST, on
5,000 training samples. ``ece`` is the expected calibration error: samples fall into 15 bins by
their largest probability; it is the mean over samples of |accuracy - mean probability| in a bin.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from scipy.special import softmax
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import StratifiedKFold

from benchmarks.measure import begin, finish, parser
from zeroone import ZeroOneClassifier
from zeroone.commands.console import print_table
from zeroone.data.load import load_data

BINS = 15
IMAGES = 5000  # training samples of the larger sets
SMALL = {
    "iris": load_iris,
    "wine": load_wine,
    "breast-cancer": load_breast_cancer,
    "digits": load_digits,
}
Numbers = NDArray[np.float64]


def load(name: str) -> tuple[Numbers, NDArray[np.int64]]:
    """Return inputs and class numbers."""
    if name in SMALL:
        X, y = SMALL[name](return_X_y=True)
    else:
        split = load_data(name)
        rows = np.random.default_rng(0).permutation(len(split.y))[:IMAGES]
        X, y = split.X[rows], split.y[rows]
    return X, np.unique(y, return_inverse=True)[1]


def held_out(X: Numbers, y: NDArray[np.int64], smoothing: float) -> tuple[Numbers, Numbers]:
    """Return the softmax of the scores and ``predict_proba``, each sample by a fit without it."""
    plain, own = np.empty((2, len(y), y.max() + 1))
    for rest, fold in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        model = ZeroOneClassifier(options={"smoothing": smoothing}).fit(X[rest], y[rest])
        plain[fold] = softmax(model.network_.scores(X[fold]).numpy(), axis=1)
        own[fold] = model.predict_proba(X[fold])
    return plain, own


def judge(P: Numbers, y: NDArray[np.int64]) -> dict[str, Any]:
    """Score probabilities; ``reliability`` has [samples, mean probability, accuracy] by bin."""
    sure, right = P.max(axis=1), P.argmax(axis=1) == y
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    rows = [np.flatnonzero(bins == k) for k in range(BINS)]
    table = [[len(r), sure[r].mean(), right[r].mean()] if len(r) else [0, None, None] for r in rows]
    return {
        "accuracy": right.mean(),
        "ece": sum(n * abs(p - a) for n, p, a in table if n) / len(y),
        "log_loss": -np.log(P[np.arange(len(y)), y]).mean(),
        "reliability": table,
    }


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=None, threads=1)
    arguments.add_argument("--data", default=",".join([*SMALL, "mnist", "fashion-mnist"]))
    arguments.add_argument("--smoothing", type=float, default=0.1)
    options = arguments.parse_args()
    record = begin("calibration", options) | {"result": {}}
    table = Table(title="expected calibration error, log loss")
    for heading in ("data", "softmax", "predict_proba", "without smoothing"):
        table.add_column(heading)
    for name in options.data.split(","):
        X, y = load(name)
        plain, own = held_out(X, y, options.smoothing)
        _, without = held_out(X, y, 0.0)
        found = {"softmax": plain, "predict_proba": own, "without smoothing": without}
        record["result"][name] = judged = {k: judge(P, y) for k, P in found.items()}
        table.add_row(name, *(f"{j['ece']:.3f}, {j['log_loss']:.3f}" for j in judged.values()))
    print_table(table)
    finish(record, options.json)


if __name__ == "__main__":
    main()
