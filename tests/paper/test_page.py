"""The page of results."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

from results_made_up import PROTOCOLS, faked

from paper.matrix.command import Effort
from paper.matrix.run import FAILED
from paper.reproduce.command import reproduce
from paper.reproduce.comparison import (
    compare_with_paper,
)
from paper.reproduce.page import write_page
from paper.reproduce.protocols import Protocol
from paper.reproduce.results import open_results
from paper.reproduce.targets import TARGETS, Made, make


def test_the_page_says_what_is_missing_and_who_made_the_rest(tmp_path):
    errors = {"relu": [0.01, 0.01], "bcd": [0.02]}
    results = {"cifar100": faked("cifar100", tmp_path, errors)}
    made = {"table2": make("table2", [results["cifar100"]], tmp_path, None)}
    (tmp_path / "docs").mkdir()
    write_page(tmp_path / "docs/page.md", made, results, tmp_path, quick=False, options=" --x")
    page = (tmp_path / "docs/page.md").read_text(encoding="utf-8")
    assert "](errata.md" not in page  # which is not there
    assert (
        "resnet18@10; all: epochs = 10, batch = 256, smoothing = 0.1, input_dropout = 0.2" in page
    )
    assert (
        "; Adam: learning_rate = 0.001; backbone: batch = 128; 0/1 BCD, 95% of the units: " in page
    )
    assert "95% of the units: head = softmax, keep = 0.95. 3 of" in page
    assert ", on an unknown processor." in page
    assert "Missing of CIFAR-100, ResNet-18: sigmoid on resnet18@10 (2)" in page
    assert "bcd on resnet18@10 (1)." in page
    assert "012345678+" in page
    assert "zeroone reproduce table2 --x\n" in page
    for run, record in results["cifar100"].matrix.records.items():
        record["machine"] = {"processor": "Xeon" if run.repetition else "EPYC"}
    write_page(tmp_path / "docs/page.md", made, results, tmp_path, quick=False, options=" --x")
    page = (tmp_path / "docs/page.md").read_text(encoding="utf-8")
    assert ", made by 012345678+, seeds 0 on EPYC; 1 on Xeon." in page
    assert f"the records in\n`{tmp_path.as_posix()}/records`" in page


def test_a_failed_cell_is_missing_not_averaged(tmp_path):
    results = faked("mnist-256", tmp_path, {"others": [0.01, 0.02], "bcd": [0.01, 0.5]})
    run = next(c for c in results.matrix.runs if (c.method, c.repetition) == ("bcd", 1))
    results.matrix.records[run] |= {"status": FAILED, "reason": "out of memory"}
    (table,) = compare_with_paper(results)
    row = next(row for row in table.rows if row[0].text == "0/1 BCD")
    assert [entry.text for entry in row[1:5:3]] == ["1 of 2", "1.00"]
    assert run in results.lacking
    made = {"table1": make("table1", [results], tmp_path, None)}
    everything = {
        name: open_results(Protocol.read(name), tmp_path, print, None) for name in PROTOCOLS
    }
    everything["mnist-256"] = results
    write_page(tmp_path / "page.md", made, everything, tmp_path, quick=False)
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "bcd, repetition 1 failed: out of memory" in page
    assert "Missing: all cells of MNIST, raw pixels" in page
    assert "keep = 0.95. 23 of 24 cells, backbones included" in page


def test_why_all_cells_failed_is_said(tmp_path):
    results = faked("cifar100", tmp_path, {"others": [0.5]})
    for record in results.matrix.records.values():
        record |= {"status": FAILED, "reason": "out of memory"}
    page = tmp_path / "page.md"
    write_page(page, {"table2": Made([], [])}, {"cifar100": results}, tmp_path, quick=False)
    text = page.read_text(encoding="utf-8")
    assert "0 of 12 cells, backbones included" in text
    assert "relu, repetition 0 failed: out of memory" in text


def test_the_page_of_the_documents_is_that_of_the_records(tmp_path, monkeypatch):
    root = Path(__file__).parents[2]
    out, page = Path("results/reproduce"), Path("docs/results.md")
    shutil.copytree(root / out / "records", tmp_path / out / "records")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/errata.md").touch()
    monkeypatch.chdir(tmp_path)
    undrawn = {name: replace(target, plot=None) for name, target in TARGETS.items()}
    monkeypatch.setattr("paper.reproduce.targets.TARGETS", undrawn)  # drawing takes seconds
    assert reproduce("all", out, Effort(quiet=True), run=False, page=page) == 0
    made, kept = page.read_text(encoding="utf-8"), (root / page).read_text(encoding="utf-8")
    drawn = re.findall(r"!\[.*\]\((.*)\)\n\n", kept)
    assert re.sub(r"!\[.*\]\(.*\)\n\n", "", kept) == made, "make docs/results.md again"
    assert len(drawn) >= 5
    assert all((root / "docs" / figure).is_file() for figure in drawn)
