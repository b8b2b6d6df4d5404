"""Results of protocols that were never run."""

from dataclasses import replace

from paper.matrix.matrix import Matrix
from paper.reproduce.claims import judge
from paper.reproduce.protocols import Protocol
from paper.reproduce.results import Results
from paper.reproduce.targets import TARGETS

PROTOCOLS = sorted({name for target in TARGETS.values() for name in target.protocols})
TEN = ["relu", "sigmoid", "swish", "selu", "tanh", "ste", "ccnn", "pcnn", "bi-real", "bcd"]


def faked(name, tmp_path, errors, *, missing=(), quick=False, **more):
    """Results whose records hold these test errors, by method, one a repetition."""
    protocol = Protocol.read(name, quick=quick)
    repetitions = max(len(values) for values in errors.values())
    protocol = replace(protocol, spec=replace(protocol.spec, seeds=repetitions))
    records = {}
    for run in protocol.spec.runs():
        values = errors.get(run.method, errors.get("others"))
        if run.method in missing or values is None or len(values) <= run.repetition:
            continue
        error = values[run.repetition]
        kept = 0.95 if run.method == "bcd-95" else 1.0
        history = [{"iteration": k, "train_error": error, "test_error": error} for k in range(3)]
        result = {
            "train_error": error / 2,
            "test_error": error,
            "test_top5_error": error / 10,
            "active_units": [2000 * kept, 2000 * kept],
            "parameters": 5_000_000 * kept,
            "operations": {"macs": 2e6 * kept, "additions": 4e6 * kept, "word_operations": 1e5},
            **{key: value(run, error) for key, value in more.items()},
        }
        records[run] = {
            "status": "completed",
            "seed": run.seed,
            "commit": "0123456789abcdef+",
            "result": result,
            "history": history,
        }
    return Results(protocol, Matrix(protocol.spec.runs(), tmp_path / name, records))


def verdict_on(words, **results):
    (judged,) = [
        v for v in judge({r.protocol.name: r for r in results.values()}) if words in v.claim
    ]
    return judged
