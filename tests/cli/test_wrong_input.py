"""Wrong input ends with one sentence and exit code 2."""

import numpy as np
import pytest

TINY = ["--hidden", "20", "--epochs", "2", "--quiet"]
EXACT = ["--solver", "exact", "--hidden", "20", "--max-iter", "2", "--quiet"]
BAD = {
    "nan": (("train", "--data", "nan.npz", *TINY, "--out", "run"), "NaN or infinity"),
    "inf": (("train", "--data", "inf.npz", *TINY, "--out", "run"), "NaN or infinity"),
    "no samples": (("train", "--data", "none.npz", *TINY, "--out", "run"), "no samples"),
    "one class": (("train", "--data", "one.npz", *TINY, "--out", "run"), "one class only"),
    "regression": (("train", "--data", "regression.csv", *TINY, "--out", "run"), "continuous"),
    "lengths": (("train", "--data", "lengths.npz", *TINY, "--out", "run"), "5 rows but y has 4"),
    "pickle": (("train", "--data", "pickle.npz", *TINY, "--out", "run"), "holds Python objects"),
    "no X": (("train", "--data", "nox.npz", *TINY, "--out", "run"), "has no array 'X'"),
    "not npz": (("train", "--data", "text.npz", *TINY, "--out", "run"), "cannot be read as .npz"),
    "missing": (("train", "--data", "away.npz", *TINY, "--out", "run"), "there is no data file"),
    "name": (("train", "--data", "digit", *TINY, "--out", "run"), "unknown data 'digit'"),
    "width": (("train", "--data", "digits", "--hidden", "0", "--out", "run"), "hidden width"),
    "widths": (
        ("train", "--data", "digits", "--hidden", "a,b", "--out", "run"),
        "a layer is a number of units",
    ),
    "solver": (("train", "--data", "digits", "--solver", "x", "--out", "run"), "unknown solver"),
    "tau": (
        ("train", "--data", "digits", *EXACT, "--tau", "0", "--out", "run"),
        "tau must be a positive",
    ),
    "pi": (
        ("train", "--data", "digits", *EXACT, "--pi", "-1", "--out", "run"),
        "pi must be a positive",
    ),
    "gamma": (
        ("train", "--data", "digits", *EXACT, "--gamma", "0", "--out", "run"),
        "gamma must be",
    ),
    "lam": (("train", "--data", "digits", "--lam", "-1", "--out", "run"), "lam must be zero or"),
    "folder": (("train", "--data", "digits", *TINY, "--out", "text.npz/run"), "cannot make"),
    "many threads": (("demo", "--threads", "99999999999"), "threads must be a whole number up to"),
    "seed": (("demo", "--seed", "-1"), "seed must be a whole number of at least 0"),
    "deep": (("train", "--data", "one.npz", *TINY, "--out", "a/b/run"), "one class only"),
    "npy": (("train", "--data", "array.npz", *TINY, "--out", "run"), "cannot be read as .npz"),
    "diverged": (
        ("train", "--data", "digits", *EXACT, "--beta", "1e30", "--pgm-steps", "50", "--out", "."),
        "training diverged: F was no longer finite",
    ),
    "other solver": (
        ("train", "--data", "digits", "--tau", "1", "--out", "run"),
        "tau is a setting of solver='exact'",
    ),
    "move": (("train", "--data", "digits", "--move", "-2", "--out", "run"), "move"),
    "keep": (("train", "--data", "digits", "--keep", "0", "--out", "run"), "keep must be above 0"),
    "batch": (
        ("train", "--data", "digits", "--batch", "1438", "--out", "run"),
        "batch=1438 is larger than the 1437 training samples.",
    ),
    "resume": (("train", "--data", "digits", "--out", "run", "--resume"), "no unfinished run"),
    "no width": (
        ("train", "--data", "digits", "--hidden", "", "--out", "run"),
        "a layer is a number of units",
    ),
    "threads": (("demo", "--threads", "0"), "threads must be a whole number"),
    "not a number": (("train", "--data", "digits", "--tau", "x", "--out", "run"), "not a valid"),
    "no option": (("train", "--data", "digits"), "Missing option '--out'"),
    "data set": (("data", "get", "mnits"), "unknown data set 'mnits'"),
    "origin": (("data", "get", "mnist", "--from", "away"), "--from takes auto, url, npm"),
    "not there": (("data", "show", "cifar100"), "run 'zeroone data get cifar100' first"),
    "train without": (("train", "--data", "cifar10", "--out", "run"), "zeroone data get cifar10"),
    "no images": (("data", "show", "breast-cancer", "--out", "x.png"), "does not hold images"),
    "empty": (("data", "show", "none.npz"), "none has no samples"),
    "validation": (("train", "--data", "digits", "--validation", "2", "--out", "r"), "validation"),
    "command": (("tran",), "No such command 'tran'"),
    "nearest command": (("data", "sho"), "Did you mean 'show'?"),
    "model": (("evaluate", "away", "--data", "digits"), "there is no model file"),
    "foreign model": (("evaluate", "text.npz", "--data", "digits"), "not a safetensors file"),
    "target": (("reproduce", "table3"), "unknown target 'table3'"),
    "protocol": (("reproduce", "table2", "--quick", "--only", "mnist"), "unknown protocol 'mnist'"),
    "target's data": (("reproduce", "table2", "--out", "new"), "zeroone data get cifar100"),
    "seeds": (("reproduce", "table2", "--quick", "--seeds", "0"), "seeds must be a whole number"),
    "page": (("reproduce", "fig-prox", "--page", "away/page.md"), "the folder away does not exist"),
    "report": (("report", "away"), "there is no record away"),
    "report's folder": (("report", ".", "--out", "away/r.html"), "the folder away does not exist"),
    "no run": (("report",), "Missing argument 'RUNS...'"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_input_is_one_sentence_and_exit_2(command, tmp_path, case):
    X, y = np.arange(10.0).reshape(5, 2), np.array([0, 1, 0, 1, 0])
    np.savez(tmp_path / "nan.npz", X=np.where(X == 3, np.nan, X), y=y)
    np.savez(tmp_path / "inf.npz", X=np.where(X == 3, np.inf, X), y=y)
    np.savez(tmp_path / "none.npz", X=X[:0], y=y[:0])
    np.savez(tmp_path / "one.npz", X=X, y=y * 0)
    (tmp_path / "regression.csv").write_text("a,b\n1,0.5\n2,0.75\n3,1.25\n")
    np.savez(tmp_path / "lengths.npz", X=X, y=y[:4])
    np.savez(tmp_path / "pickle.npz", X=X.astype(object), y=y)
    np.savez(tmp_path / "nox.npz", y=y)
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "array.npy", X)
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    before = sorted(p.name for p in tmp_path.iterdir())
    words, sentence = BAD[case]
    code, out, err = command(*words)
    assert code == 2
    assert out == ""
    assert err.startswith("zeroone: ")
    assert sentence in err
    assert err.count("\n") == 1
    left = sorted(p.name for p in tmp_path.iterdir() if p.name not in ("record.json", ".lock"))
    assert left == before  # nothing half-written; a run that diverged keeps its record
