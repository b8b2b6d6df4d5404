"""The benchmark of robustness: cells, resumption, the record and the page, on tiny images."""

import argparse
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import robustness, robustness_page
from paper.reproduce.differences import difference
from zeroone import TrainSettings, train
from zeroone.baselines.settings import BaselineSettings
from zeroone.training.baselines import train_baseline

PLAN = {"radii": [0.1, 0.3], "l2": [0.5, 1.0], "noise": 0.1}


@pytest.fixture(scope="module")
def images():
    """Three classes of 6 x 6 bytes: a bright third."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    X = rng.integers(0, 120, (600, 6, 6))
    for k in range(3):
        X[y == k, 2 * k : 2 * k + 2] += 90
    X = X.reshape(600, 36).astype(np.uint8)
    return SimpleNamespace(X=X[:400], y=y[:400], X_test=X[400:], y_test=y[400:])


@pytest.fixture
def tiny(monkeypatch, images):
    monkeypatch.setattr(robustness, "load_data", lambda name: images)
    monkeypatch.setattr(robustness, "PLANS", {"mnist": PLAN})
    queries = {"square": [10, 30], "rays": [10, 30], "l2": [50, 150]}
    monkeypatch.setattr(robustness, "QUERIES", queries)
    monkeypatch.setattr(robustness, "DRAWS", 3)
    monkeypatch.setattr(robustness, "CRAFT", 5)


def call(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["robustness", *map(str, words)])
    robustness.main()


@pytest.mark.parametrize("kind", ["bcd", "relu", "ste"])
@pytest.mark.parametrize("keep", [None, 0.5])
def test_a_victim_answers_like_its_network(images, kind, keep):
    few = {"hidden": (12, 8), "epochs": 2, "keep": keep}
    if kind == "bcd":
        settings = TrainSettings.from_options(**few)
        model = train(images.X, images.y, settings).network
        scores = model.scores(images.X_test)
    else:
        settings = TrainSettings.from_options(**few)
        model, _ = train_baseline(images.X, images.y, BaselineSettings(kind), settings)
        with torch.no_grad():
            scores = model.forward(model.scaling.apply(torch.from_numpy(images.X_test)))
    X = torch.from_numpy(images.X_test).float() / 255
    victim = robustness.Victim.of(model, X, steps=kind != "relu")
    same = torch.isclose(victim.scores(X), scores, atol=1e-4).all(dim=1)
    assert same.float().mean() > 0.98  # a pre-activation next to 0 may round to another bit


def test_cells_are_kept_resumed_and_reported(tiny, monkeypatch, tmp_path, capsys):
    words = ("--folder", tmp_path, "--seeds", 1, "--epochs", 2, "--steps", 10, "--per-class", 5)
    words += ("--data", "mnist", "--json", tmp_path / "r.json", "--page", tmp_path / "page.md")
    call(monkeypatch, *words)
    path = tmp_path / "cells.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 6
    for line in lines:
        result = json.loads(line)["result"]
        for errors in result["radii"].values():
            assert errors["worst"] >= max(errors.values())
            assert errors["pgd"] >= result["clean"]
        small, large = result["radii"].values()
        assert all(small[name] <= large[name] for name in small)
        for course in result["restarts"].values():
            assert course == sorted(course)
        assert result["l2"]["50"]["median"] >= result["l2"]["150"]["median"]
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "All 6 networks are measured" in page
    assert page.count("incomplete") > 10  # one seed decides nothing
    assert all(len(line) <= 100 for line in page.splitlines() if not line.startswith("|"))

    path.write_text("\n".join([*lines[:4], lines[4][:30]]) + "\n", encoding="utf-8")  # a crash
    capsys.readouterr()
    call(monkeypatch, *words)
    assert capsys.readouterr().out.count("worst {") == 2
    again = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[5:]]
    for old, new in zip(map(json.loads, lines[4:]), again, strict=True):
        assert new["result"] == old["result"]
    record = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert len(record["cells"]) == 6
    call(monkeypatch, "--no-run", "--json", tmp_path / "r.json", "--page", tmp_path / "2.md")
    assert (tmp_path / "2.md").read_text(encoding="utf-8") == page
    path.unlink()
    call(monkeypatch, "--no-run", *words)
    assert "0 of 6 networks are measured" in (tmp_path / "page.md").read_text(encoding="utf-8")
    path.write_text(lines[0], encoding="utf-8")
    with pytest.raises(SystemExit, match="other settings"):
        call(monkeypatch, *words[:-4], "--epochs", 3)


def test_the_page_of_the_documents_is_that_of_the_record():
    root = Path(__file__).parents[2]
    record = json.loads((root / "results/robustness.json").read_text(encoding="utf-8"))
    kept = (root / "docs/robustness.md").read_text(encoding="utf-8")
    assert kept == robustness_page.page(record), "make docs/robustness.md again"


def test_a_half_written_line_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "cells.jsonl"
    path.write_text('{"a": 1}\n{"b":', encoding="utf-8")
    robustness.append(path, {"c": 3})
    assert robustness.read(path) == [{"a": 1}, {"c": 3}]


@pytest.mark.parametrize(
    ("ours", "relu", "ste", "expected"),
    [
        ([10, 11, 12], [20, 21.1, 22], [30, 31.1, 32], "confirmed"),
        ([10, 11, 12], [5, 6.1, 7], [30, 31.1, 32], "refuted"),
        ([10, 11, 12], [20, 21.1, 22], [9, 12, 14], "undecided"),
        ([10, 11], [20, 21.1], [30, 31.1], "incomplete"),
        ([10, 11, 12], [], [30, 31.1, 32], "-"),
    ],
)
def test_verdicts(ours, relu, ste, expected):
    mine = dict(enumerate(ours))
    gaps = [difference(mine, dict(enumerate(twin)), of=2) for twin in (relu, ste)]
    assert robustness_page.verdict(gaps) == expected


def test_a_larger_distance_is_better():
    mine, nearer = {0: 3.0, 1: 3.1, 2: 3.3}, {0: 2.0, 1: 2.2, 2: 2.3}
    gap = difference(mine, nearer, of=2)
    assert robustness_page.verdict([gap, gap], lower_is_better=False) == "confirmed"
    assert robustness_page.verdict([gap, gap]) == "refuted"


def test_a_large_ball_leaves_no_image(tiny, tmp_path):
    options = argparse.Namespace(epochs=2, steps=100, per_class=10)
    bench = robustness.Bench("mnist", tmp_path, options)
    cell = robustness.Cell(bench, "bcd", 0, 0.0)
    assert cell.sanity(100) == 1.0
