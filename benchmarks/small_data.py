"""``ZeroOneClassifier().fit`` against scikit-learn's MLPClassifier: CPU seconds and accuracy.

    python benchmarks/small_data.py --suite small --json results/small_data.json

Suites: ``small`` (nine sets of 150 to 1,797 samples by 5-fold cross-validation, and 50,000 x 20
rows with one cut of 80/20), ``text`` (10,000 x 5,000 sparse tf-idf, fitted on 8,000), ``large``
(1,000,000 x 20 rows, scored on 100,000 more), ``grid`` (GridSearchCV of 12 settings, 3-fold, on
digits, by two processes that are started for it) and ``check`` (scikit-learn's own checks of an
estimator). All models have their defaults, except for the hidden layers in a model's name.

Seconds are CPU time on one thread: medians over the fits, which take turns in one process after one
small fit each. ``grid`` and ``check`` take wall time.
"""

import argparse
import math
import os
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from joblib.externals.loky import get_reusable_executor
from rich.table import Table
from scipy.sparse import csr_array
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_circles,
    make_classification,
    make_moons,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

from benchmarks.measure import begin, finish, parser
from zeroone import ZeroOneClassifier
from zeroone.commands.console import print_table

OURS, THEIRS = "zeroone", "mlp-256-256"
MODELS: dict[str, Callable[[int], Any]] = {
    OURS: lambda seed: ZeroOneClassifier(random_state=seed),
    THEIRS: lambda seed: MLPClassifier((256, 256), random_state=seed),
    "mlp-100": lambda seed: MLPClassifier(random_state=seed),
    # MLPClassifier does not scale its inputs and ours does: this one scales, too.
    "scaled-mlp": lambda seed: make_pipeline(
        StandardScaler(), MLPClassifier((256, 256), random_state=seed)
    ),
}
FOLDS = 5
# For both: widths, and two settings that change the time or the accuracy.
WIDTHS = [(64,), (128, 128), (256, 256)]
GRIDS = {
    OURS: {"hidden": WIDTHS, "keep": [None, 0.5], "epochs": [None, 50]},
    THEIRS: {
        "hidden_layer_sizes": WIDTHS,
        "alpha": [1e-4, 1e-2],
        "learning_rate_init": [1e-3, 3e-3],
    },
}

Samples = tuple[Any, np.ndarray]


def loaded(load: Callable[..., Samples], samples: int | None) -> Samples:
    """Load a data set of scikit-learn, in random order."""
    X, y = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))[:samples]
    return X[order], y[order]


def fewer(n: int, samples: int | None) -> int:
    return n if samples is None else min(n, samples)


def moons(samples: int | None) -> Samples:
    return make_moons(fewer(1000, samples), noise=0.2, random_state=0)


def circles(samples: int | None) -> Samples:
    return make_circles(fewer(1000, samples), noise=0.1, factor=0.5, random_state=0)


def xor(samples: int | None) -> Samples:
    """Make the quadrants of a square, with blurred positions: 5 to 10% cannot be known."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (fewer(1000, samples), 2))
    return X + rng.normal(0, 0.1, X.shape), (X[:, 0] * X[:, 1] > 0).astype(int)


def parity(samples: int | None) -> Samples:
    """Make the parity of four of ten random bits: almost half of the test patterns are new."""
    X = np.random.default_rng(0).integers(0, 2, (fewer(1000, samples), 10)).astype(float)
    return X, X[:, :4].sum(axis=1).astype(int) % 2


def spiral(samples: int | None) -> Samples:
    """Make two arms of one and a half turns."""
    rng = np.random.default_rng(0)
    n, turns = fewer(1000, samples), 1.5
    radius, y = np.sqrt(rng.random(n)), rng.integers(0, 2, n)
    angle = 2 * np.pi * turns * radius + np.pi * y
    X = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return X + rng.normal(0, 0.02, X.shape), y


def rows(n: int, samples: int | None) -> Samples:
    """Make two classes of two clusters each in ten of twenty features, with 1% random labels."""
    return make_classification(
        fewer(n, samples),
        20,
        n_informative=10,
        n_clusters_per_class=2,
        flip_y=0.01,
        random_state=0,
    )


def text(samples: int | None) -> Samples:
    """Make tf-idf of a corpus with 20 topics and 5,000 words of Zipf's frequencies.

    A word comes from its document's topic, from another topic (one per document) or from all
    topics, at random. Documents differ in how many of their words come from their topic.
    """
    rng = np.random.default_rng(0)
    n, n_words, n_topics = fewer(10_000, samples), 5_000, 20
    common = 1 / (np.arange(n_words) + 2.7)
    topics = common * rng.gamma(0.3, size=(n_topics, n_words))
    sources = np.vstack([topics, common])  # the last one belongs to all topics
    sources = np.cumsum(sources / sources.sum(axis=1, keepdims=True), axis=1)
    y, other = rng.integers(0, n_topics, (2, n))
    lengths = np.clip(rng.lognormal(math.log(80), 0.7, n), 10, 1000).astype(int)
    document = np.repeat(np.arange(n), lengths)
    own = rng.beta(3, 4, n)[document]
    kind = rng.random(len(document))
    source = np.where(kind < own, y[document], np.where(kind < 0.9, n_topics, other[document]))
    word = np.empty_like(source)
    for number, shares in enumerate(sources):
        here = source == number
        word[here] = np.searchsorted(shares, rng.random(int(here.sum())))
    word = word.clip(max=n_words - 1)  # the shares may add up to a little less than 1
    counts = csr_array((np.ones(len(word)), (document, word)), shape=(n, n_words))
    return TfidfTransformer().fit_transform(counts), y


SUITES: dict[str, dict[str, Callable[[int | None], Samples]]] = {
    "small": {
        "iris": partial(loaded, load_iris),
        "wine": partial(loaded, load_wine),
        "breast cancer": partial(loaded, load_breast_cancer),
        "digits": partial(loaded, load_digits),
        "moons": moons,
        "circles": circles,
        "xor": xor,
        "parity": parity,
        "spiral": spiral,
        "50,000 x 20": partial(rows, 50_000),
    },
    "text": {"text": text},
    "large": {"1,000,000 x 20": partial(rows, 1_100_000)},
    "grid": {},
    "check": {},
}
CUTS = {
    "50,000 x 20": 0.2,
    "text": 0.2,
    "1,000,000 x 20": 1 / 11,
}  # the share of the test part; the other sets have folds


def parts(name: str, y: np.ndarray, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Give the indices of the training and test samples."""
    if name in CUTS:
        numbers = np.arange(len(y))
        yield train_test_split(numbers, test_size=CUTS[name], stratify=y, random_state=seed)
    else:
        yield from StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(y, y)


def fit_seconds(model: Any, X: Any, y: np.ndarray) -> float:
    started = time.process_time()
    model.fit(X, y)
    return time.process_time() - started


def warm_up(models: list[str]) -> None:
    X, y = moons(40)
    for name in models:
        MODELS[name](0).fit(X, y)


def measure_set(name: str, samples: Samples, models: list[str], seeds: int) -> dict[str, Any]:
    """Fit the models in turns; one that refuses the data has its reason instead."""
    X, y = samples
    seconds: dict[str, list[float]] = {model: [] for model in models}
    accuracies: dict[str, list[float]] = {model: [] for model in models}
    failed: dict[str, str] = {}
    for seed in range(seeds):
        for train, test in parts(name, y, seed):
            for model_name in models:
                if model_name in failed:
                    continue
                model = MODELS[model_name](seed)
                try:
                    seconds[model_name].append(fit_seconds(model, X[train], y[train]))
                except (TypeError, ValueError) as error:
                    failed[model_name] = f"{type(error).__name__}: {error}".splitlines()[0]
                    continue
                accuracies[model_name].append(float(model.score(X[test], y[test])))
    found = {
        model: {
            "seconds": statistics.median(seconds[model]),
            "accuracy": statistics.mean(accuracies[model]),
            "all_seconds": seconds[model],
            "all_accuracies": accuracies[model],
        }
        for model in models
        if model not in failed
    }
    entry = {"samples": len(y), "features": X.shape[1], "classes": len(np.unique(y))}
    return entry | {"models": found, "failed": failed} | against_baselines(found)


def against_baselines(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Compare ours with each baseline: ratio of seconds, difference of accuracies."""
    baselines = [name for name in found if name != OURS] if OURS in found else []
    ours = found.get(OURS, {})
    return {
        "ratio": {name: ours["seconds"] / found[name]["seconds"] for name in baselines},
        "difference": {name: ours["accuracy"] - found[name]["accuracy"] for name in baselines},
    }


def summarise(sets: dict[str, Any], models: list[str]) -> dict[str, Any]:
    """Average the accuracies of the sets with folds; find the worst cases of all sets."""
    small = [entry for name, entry in sets.items() if name not in CUTS]
    summary: dict[str, Any] = {"mean_accuracy": {}, "worst_difference": {}, "largest_ratio": {}}
    for model in models:
        if small and all(model in entry["models"] for entry in small):
            known = [entry["models"][model]["accuracy"] for entry in small]
            summary["mean_accuracy"][model] = statistics.mean(known)
        differences = {n: e["difference"][model] for n, e in sets.items() if model in e["ratio"]}
        ratios = {n: e["ratio"][model] for n, e in sets.items() if model in e["ratio"]}
        if ratios:
            worst, slowest = min(differences, key=differences.get), max(ratios, key=ratios.get)
            summary["worst_difference"][model] = {"data": worst, "difference": differences[worst]}
            summary["largest_ratio"][model] = {"data": slowest, "ratio": ratios[slowest]}
    return summary


def print_sets(sets: dict[str, Any], models: list[str]) -> None:
    table = Table("data", "size", title="CPU seconds of a fit, accuracy")
    for heading in (*models, "ratio"):
        table.add_column(heading, justify="right")
    for name, entry in sets.items():
        cells = []
        for model in models:
            found = entry["models"].get(model)
            cells.append(
                f"{found['seconds']:.3g} s {found['accuracy']:7.2%}" if found else "failed"
            )
        baseline = next(iter(entry["ratio"]), None) if THEIRS not in entry["ratio"] else THEIRS
        ratio = f"{entry['ratio'][baseline]:.2f}" if baseline else ""
        table.add_row(name, f"{entry['samples']:,} x {entry['features']:,}", *cells, ratio)
    print_table(table, width=120)
    for name, entry in sets.items():
        for model, reason in entry["failed"].items():
            print(f"{name}: {model} failed: {reason}")


def print_summary(summary: dict[str, Any]) -> None:
    if summary["mean_accuracy"]:
        listed = ", ".join(f"{n} {a:.2%}" for n, a in summary["mean_accuracy"].items())
        print(f"mean accuracy over the small sets: {listed}")
    for baseline, worst in summary["worst_difference"].items():
        slowest = summary["largest_ratio"][baseline]
        print(
            f"against {baseline}: worst accuracy {100 * worst['difference']:+.2f} points "
            f"({worst['data']}), largest ratio of seconds {slowest['ratio']:.2f} "
            f"({slowest['data']})"
        )


def compare(options: argparse.Namespace, record: dict[str, Any], models: list[str]) -> None:
    """Measure all sets of a suite; write the record after each of them."""
    makers = {
        name: make
        for name, make in SUITES[options.suite].items()
        if options.data is None or name in options.data
    }
    if not makers:
        sys.exit(f"the suite {options.suite} has {', '.join(SUITES[options.suite])}")
    record["result"] = result = {"data": {}}
    warm_up(models)
    seeds = options.seeds or (3 if options.suite == "small" else 1)
    for name, make in makers.items():
        entry = result["data"][name] = measure_set(name, make(options.samples), models, seeds)
        listed = ", ".join(f"{m} {f['seconds']:.3g} s" for m, f in entry["models"].items())
        print(f"{name}: {listed}", flush=True)
        finish(record, options.json, quiet=True)
    result["summary"] = summarise(result["data"], models)
    print_sets(result["data"], models)
    print_summary(result["summary"])


def search(options: argparse.Namespace, record: dict[str, Any], models: list[str]) -> None:
    """Time a grid search of each model, by processes that are started for it."""
    X, y = loaded(load_digits, options.samples)
    os.environ["PYTHONWARNINGS"] = "ignore::UserWarning"  # theirs: it has not converged
    record["result"] = result = {}
    for name in [name for name in models if name in GRIDS]:
        get_reusable_executor().shutdown(wait=True)
        found = GridSearchCV(MODELS[name](0), GRIDS[name], cv=3, n_jobs=options.jobs)
        started = time.perf_counter()
        found.fit(X, y)
        seconds = time.perf_counter() - started
        result[name] = {
            "seconds": seconds,
            "settings": len(found.cv_results_["params"]),
            "grid": GRIDS[name],
            "best": found.best_params_,
            "accuracy": found.best_score_,
            "fit_seconds": found.cv_results_["mean_fit_time"].tolist(),
            "accuracies": found.cv_results_["mean_test_score"].tolist(),
        }
        print(
            f"{name}: {result[name]['settings']} settings x 3 folds by {options.jobs} processes: "
            f"{seconds:.1f} s; best {found.best_score_:.2%} with {found.best_params_}"
        )


def check(record: dict[str, Any], models: list[str]) -> None:
    """Time scikit-learn's checks of an estimator, and count their outcomes."""
    record["result"] = result = {}
    for name in [name for name in models if name in (OURS, THEIRS)]:
        started, cpu = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = check_estimator(MODELS[name](0), on_fail=None, on_skip=None)
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu
        counts = Counter(one["status"] for one in found)
        failed = {
            one["check_name"]: repr(one["exception"]) for one in found if one["status"] == "failed"
        }
        result[name] = {"seconds": wall, "cpu_seconds": cpu, "counts": counts, "failed": failed}
        listed = ", ".join(f"{n} {status}" for status, n in counts.items())
        print(f"{name}: check_estimator took {wall:.1f} s: {listed}")
        for what, reason in failed.items():
            print(f"  {what}: {reason[:200]}")


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=None, threads=None)
    arguments.add_argument("--suite", choices=SUITES, default="small")
    arguments.add_argument(
        "--seeds", type=int, help="seeds 0, 1, ... (default: 3 of small, else 1)"
    )
    arguments.add_argument("--data", nargs="+", help="only these data sets")
    arguments.add_argument("--models", nargs="+", choices=MODELS, help="only these models")
    arguments.add_argument("--samples", type=int, help="at most so many of each data set")
    arguments.add_argument("--jobs", type=int, default=2, help="processes of the grid search")
    options = arguments.parse_args()
    models = options.models or list(MODELS)
    if options.models is None and options.suite in ("text", "large"):
        models.remove("scaled-mlp")
    warnings.simplefilter("ignore", ConvergenceWarning)  # 200 iterations are its default
    record = begin(f"small_data-{options.suite}", options)
    with threadpool_limits(1):
        if options.suite == "grid":
            search(options, record, models)
        elif options.suite == "check":
            check(record, models)
        else:
            compare(options, record, models)
    finish(record, options.json)


if __name__ == "__main__":
    main()
