"""What a person sees of a run matrix: while it runs, and in the end."""

from dataclasses import replace

import pytest
from runs_made_up import filled, keep_made_up

from paper.matrix.live_table import _table, live_table
from paper.matrix.matrix import Matrix
from paper.matrix.run import Run
from paper.matrix.tables import failures, print_summary, summarise
from paper.matrix.workers import (
    Ended,
    Progress,
)
from paper.printed_numbers import paper_flops


def test_tables(spec, tmp_path, capsys):
    rows = summarise(filled(spec, tmp_path), spec.known_methods)
    relu, bcd, wild = rows
    assert (relu["n"], relu["planned"], relu["failed"]) == (1, 2, ["it rained"])
    assert relu["test_error"] == {"mean": 0.01, "deviation": None, "values": [0.01]}
    assert bcd["seeds"] == [spec.runs()[1].seed, spec.runs()[4].seed]
    assert bcd["test_error"]["mean"] == pytest.approx(0.02)
    assert bcd["test_error"]["deviation"] == pytest.approx(0.02 / 2**0.5)
    assert (bcd["active_units"], bcd["parameters"], bcd["additions"]) == ([8, 6], 700, 4)
    assert bcd["noise"]["errors"][1] == {"mean": 0.1, "deviation": 0, "values": [0.1, 0.1]}
    assert bcd["seconds_per_iteration"] == 0.5
    assert (wild["n"], wild["label"]) == (0, "ReLU, far too fast")
    assert failures(rows) == ["digits, f3nn:8-6, relu: it rained"]
    print_summary(rows)
    out = capsys.readouterr().out
    assert "1 of 2" in out
    assert "2.00 +- 1.41%" in out
    assert "test error in noise" in out
    assert "paper's FLOPs" not in out


def test_the_paper_s_flops_stand_beside_ours(tmp_path, capsys):
    run = Run("mnist", "convnet", "ste", 0, baseline=True)
    matrix = Matrix([run], tmp_path, {})
    keep_made_up(matrix, run)
    rows = summarise(matrix)
    print_summary(rows)
    assert rows[0]["paper_flops_millions"] == 0.382
    assert "0.382M" in capsys.readouterr().out
    assert paper_flops("cifar100", "resnet18", "bcd") == 182.9
    assert paper_flops("cifar100", "resnet18@10", "bcd") == 182.9
    assert paper_flops("cifar100", "resnet18@10:9", "bcd") is None
    assert paper_flops("cifar100", "resnet18", "pcnn") is None
    assert paper_flops("mnist", "f3nn", "relu") is None


def test_the_live_table(spec, tmp_path):
    matrix = filled(spec, tmp_path)
    run = spec.runs()[2]
    table = _table(matrix, {run: Progress(run, 0.4, 0.123)})
    assert table.title == "4 of 6 runs"
    assert table.columns[1].header == "digits\nf3nn:8-6"
    entries = list(table.columns[1].cells)
    assert entries == [
        "1.00% (1) [red]1 failed[/red]",
        "2.00% (2)",
        "[dim]40% 12.30%[/dim]",
    ]
    assert list(_table(matrix, {}).columns[1].cells)[2] == "."


def test_plain_lines(spec, tmp_path, capsys):
    matrix = filled(spec, tmp_path)
    with live_table(matrix, 6) as watch:
        watch(Progress(spec.runs()[0], 0.5))
        for run in matrix.records:
            watch(Ended(run, 12.3))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1/6 digits, f3nn:8-6, relu, repetition 0 (12 s): test error 1.00%"
    assert "2/6 digits, f3nn:8-6, bcd" in lines[1]
    assert any("failed: it rained" in line for line in lines)
    with live_table(matrix, 6, quiet=True) as watch:
        watch(Ended(run, 1.0))
    assert capsys.readouterr().err == ""


def test_markup_in_names_is_printed_as_it_is(spec, tmp_path, capsys):
    matrix = filled(spec, tmp_path)
    labels = {name: replace(m, label="x [/red] [sign]") for name, m in spec.known_methods.items()}
    print_summary(summarise(matrix, labels))
    assert "x [/red] [sign]" in capsys.readouterr().out
