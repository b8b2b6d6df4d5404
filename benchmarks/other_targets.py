"""Regression and several labels per sample: our estimators against scikit-learn's.

    python benchmarks/other_targets.py --json results/other_targets.json

5-fold cross-validation, shuffled; all estimators have their defaults, except for the hidden layers
of scikit-learn's networks. The score is R^2, or the share of samples with all labels right. Seconds
are CPU time per fit on one thread, after one small fit. The regressor's defaults were chosen on
``make_friedman1(2000, noise=1, random_state=7)``, which is not among these data.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.table import Table
from sklearn.datasets import load_diabetes, make_friedman1, make_multilabel_classification
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.measure import begin, finish, parser
from zeroone import ZeroOneClassifier, ZeroOneRegressor
from zeroone.commands.console import print_table

WIDE: dict[str, Any] = {"hidden_layer_sizes": (256, 256), "random_state": 0}
Models = dict[str, Callable[[], Any]]
REGRESSORS: Models = {
    "zeroone": ZeroOneRegressor,
    "mlp-256-256": lambda: MLPRegressor(**WIDE),
    "scaled-mlp": lambda: make_pipeline(StandardScaler(), MLPRegressor(**WIDE)),
    "boosted trees": lambda: HistGradientBoostingRegressor(random_state=0),
}
CLASSIFIERS: Models = {
    "zeroone": ZeroOneClassifier,
    "mlp-256-256": lambda: MLPClassifier(**WIDE),
    "scaled-mlp": lambda: make_pipeline(StandardScaler(), MLPClassifier(**WIDE)),
}
DATA: dict[str, tuple[Callable[[], Any], Models]] = {
    "diabetes": (lambda: load_diabetes(return_X_y=True), REGRESSORS),
    "friedman1": (lambda: make_friedman1(2000, random_state=0), REGRESSORS),
    "friedman1, noise 1": (lambda: make_friedman1(2000, noise=1, random_state=0), REGRESSORS),
    "several labels": (lambda: make_multilabel_classification(2000, random_state=0), CLASSIFIERS),
}


def judge(make: Callable[[], Any], X: Any, y: Any) -> dict[str, list[float]]:
    """Return the score and the CPU seconds of each fold's fit."""
    make().fit(X[:50], y[:50])
    found: dict[str, list[float]] = {"scores": [], "seconds": []}
    for rest, fold in KFold(5, shuffle=True, random_state=0).split(X):
        started = time.process_time()
        model = make().fit(X[rest], y[rest])
        found["seconds"].append(time.process_time() - started)
        found["scores"].append(float(model.score(X[fold], y[fold])))
    return found


def main() -> None:
    options = parser(__doc__.splitlines()[0], repeats=None, threads=1).parse_args()
    record = begin("other targets", options) | {"result": {}}
    table = Table(title="score, its standard error over the folds, CPU seconds")
    for heading in ("data", *REGRESSORS):
        table.add_column(heading)
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1):
        for name, (load, models) in DATA.items():
            data = load()
            record["result"][name] = judged = {k: judge(make, *data) for k, make in models.items()}
            table.add_row(name, *map(describe, judged.values()))
    print_table(table)
    finish(record, options.json)


def describe(found: dict[str, list[float]]) -> str:
    scores = np.array(found["scores"])
    error = scores.std() / len(scores) ** 0.5
    return f"{scores.mean():.3f} ± {error:.3f}, {np.mean(found['seconds']):.2f}"


if __name__ == "__main__":
    main()
