"""Test errors on spoken words of held-out voices: 0/1 by BCD, ReLU and STE by Adam.

    python examples/make_speech.py speech
    python benchmarks/speech.py --folder speech --json results/speech.json

All methods train the network of examples/speech.py on the same recordings, batches and epochs. Each
takes the best of six settings on the validation voices, with seed 0. Then it trains on the training
and validation voices together, once for each seed, and is scored on the test voices. The C export
of each 0/1 network must give the labels of its integer form. ``--resume`` keeps the methods that an
unfinished record has.
"""

import json
import tempfile
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.engines import by_c
from benchmarks.measure import begin, finish, parser
from examples.speech import BANDS, LAYERS, MOMENTS, WORDS, read_words
from zeroone import quantise
from zeroone.baselines.settings import BaselineSettings
from zeroone.training import TrainSettings, train
from zeroone.training.baselines import train_baseline

BATCH = 64
RATES = (1e-3, 3e-3, 1e-2)
# The settings of each method to choose from.
TRIALS: dict[str, list[dict[str, Any]]] = {
    "0/1, BCD": [
        {"move": move, "input_dropout": dropout}
        for dropout in (0.0, 0.2)
        for move in (0.05, 0.08, 0.12)
    ],
    "ReLU, Adam": [
        {"activation": "relu", "batch_norm": norm, "learning_rate": rate}
        for norm in (False, True)
        for rate in RATES
    ],
    "0/1, STE + BatchNorm, Adam": [
        {"activation": "ste", "batch_norm": True, "learning_rate": rate, "input_dropout": dropout}
        for dropout in (0.0, 0.2)
        for rate in RATES
    ],
    # Added when we had seen a test error of 90% with the best move: nothing is chosen here.
    "0/1, BCD, defaults": [{"move": 0.08, "input_dropout": 0.0}],
}
Part = tuple[NDArray[np.uint8], NDArray[np.int64]]


def run(trial: dict[str, Any], seed: int, epochs: int, fit: Part, score: Part) -> tuple[Any, ...]:
    """Train and return the network, its error on ``score`` and the seconds of the training."""
    common = {"hidden": LAYERS, "epochs": epochs, "batch": BATCH, "seed": seed}
    settled = {name: value for name, value in trial.items() if name in ("move", "input_dropout")}
    settings = TrainSettings.from_options(**common, **settled)
    rival = {name: value for name, value in trial.items() if name not in settled}
    known = {"test": score, "image": (1, BANDS, MOMENTS)}
    started = time.perf_counter()
    if not rival:
        done = train(*fit, settings, **known)
        network, record = done.network, done.record
    else:
        network, record = train_baseline(*fit, BaselineSettings(**rival), settings, **known)
    return network, record["result"]["test_error"], time.perf_counter() - started


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=None, threads=1)
    arguments.add_argument("--folder", default="speech")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--epochs", type=int, default=30)
    arguments.add_argument("--resume", action="store_true", help="keep what --json has")
    options = arguments.parse_args()
    record = begin("speech", options)
    if options.resume:
        record = json.loads(options.json.read_text(encoding="utf-8"))
    parts = {
        name: (X.reshape(len(X), -1), np.searchsorted(sorted(WORDS.split()), y))
        for name, (X, y) in read_words(Path(options.folder)).items()
    }
    record |= {"samples": {name: len(y) for name, (_, y) in parts.items()}, "layers": LAYERS}
    record = {"trials": [], "table": {}} | record
    seeds = range(options.seeds)
    both = tuple(np.concatenate(p) for p in zip(parts["train"], parts["validation"], strict=True))
    for method, trials in TRIALS.items():
        if method in record["table"]:
            continue
        errors = []
        for trial in trials:
            _, error, seconds = run(trial, 0, options.epochs, parts["train"], parts["validation"])
            errors.append(error)
            record["trials"].append({"method": method, **trial, "validation_error": error})
            print(f"{method} {trial}: {100 * error:.2f}%, {seconds:.0f} s", flush=True)
        best = trials[int(np.argmin(errors))]
        runs = [run(best, seed, options.epochs, both, parts["test"]) for seed in seeds]
        record["table"][method] = row = {"settings": best, "test_errors": [r[1] for r in runs]}
        row["seconds"] = [seconds for _, _, seconds in runs]
        if "move" in best:
            row["in_c"] = [exported(network, *parts["test"]) for network, _, _ in runs]
        show(method, row)
        finish(record, options.json, quiet=True)  # nothing is lost if a later method fails
    finish(record, options.json)


def exported(network: Any, X: NDArray[np.uint8], y: NDArray[np.int64]) -> dict[str, Any]:
    """Compare the labels of the C export with those of the integer and the float network."""
    integers = quantise(network)
    with tempfile.TemporaryDirectory() as folder:
        labels = by_c(integers, X, Path(folder)).argmax(axis=1)
    return {
        "error": float((labels != y).mean()),
        "as_integers": bool((labels == integers.predict(X).astype(int)).all()),
        "other_labels_than_float": int((labels != network.predict(X)).sum()),
        "bytes": integers.n_bytes,
    }


def show(method: str, row: dict[str, Any]) -> None:
    errors = [100 * error for error in row["test_errors"]]
    spread = f" +- {stdev(errors):.2f}" if len(errors) > 1 else ""
    print(f"{method} {row['settings']}: test error {mean(errors):.2f}{spread}%")
    print(f"  seconds {mean(row['seconds']):.0f}", *row.get("in_c", []), sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
