"""``zeroone reproduce`` on digits: tables and figures, from records only."""

import json
import re
import shutil

import pytest
from results_made_up import TEN
from runs_made_up import read_lines, write_lines

from paper.matrix.command import Effort
from paper.matrix.methods import METHODS
from paper.matrix.record_file import FILE
from paper.reproduce.command import reproduce
from paper.reproduce.figures import plot_prox
from paper.reproduce.targets import TARGETS
from zeroone.utils.checks import InputError


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """All targets on digits, one seed."""
    out = tmp_path_factory.mktemp("reproduce")
    assert reproduce("all", out, Effort(quiet=True), quick=True, seeds=1) == 0
    return out


def test_everything_is_made_of_records(quick):
    page = (quick / "results.md").read_text(encoding="utf-8")
    assert "Missing" not in page
    assert "missing" not in page
    for name, target in TARGETS.items():
        assert f"## {target.title}" in page
        kinds = [*("md", "tex") * bool(target.tabulate), *("png", "svg") * bool(target.plot)]
        assert kinds
        for kind in kinds:
            assert (quick / f"{name}.{kind}").stat().st_size > 100
    assert (quick / "fig-noise-images.svg").is_file()
    for label in (METHODS[name].label for name in TEN):
        assert page.count(f"| {label} |") >= 5
    for figure in re.findall(r"!\[.*\]\((.*)\)", page):
        assert (quick / figure).is_file()


def test_the_same_records_make_the_same_tables_and_figures(quick, capsys):
    names = [*quick.glob("*.md"), *quick.glob("*.tex"), *quick.glob("*.svg"), *quick.glob("*.png")]
    before = {path: path.read_bytes() for path in names}
    assert reproduce("all", quick, Effort(quiet=True), quick=True, seeds=1, run=False) == 0
    assert before == {path: path.read_bytes() for path in before}
    assert len(before) > 12


def test_the_same_runs_make_the_same_records_once_more(quick, tmp_path):
    """A backbone, a baseline and BCD, trained again from nothing."""
    chosen = {"only": ("cifar100",), "methods": ("relu", "bcd")}
    assert reproduce("table2", tmp_path, Effort(quiet=True), quick=True, seeds=1, **chosen) == 0
    again, before = (read_lines(out / "records/cifar100") for out in (tmp_path, quick))
    assert {method for _, method, _ in again} == {"initial", "relu", "bcd"}
    for key, line in again.items():
        assert json.dumps(line["record"]) == json.dumps(before[key]["record"])


def test_a_corrupt_record_is_named_and_redone(quick, capsys):
    path = quick / "records/parameters" / FILE
    before = read_lines(path.parent)
    table = (quick / "parameters.md").read_bytes()
    lines = path.read_bytes().splitlines()
    (damaged,) = [k for k, line in enumerate(lines) if b'"method":"bcd"' in line]
    lines[damaged] = lines[damaged][: len(lines[damaged]) // 2]
    path.write_bytes(b"\n".join(lines))
    options = {"quick": True, "seeds": 1}
    assert reproduce("parameters", quick, Effort(quiet=True), **options, run=False) == 0
    assert "bcd on f3nn:60-60 (1)" in (quick / "results.md").read_text(encoding="utf-8")
    said = capsys.readouterr().err
    assert f"{FILE}, line {damaged + 1} is not a readable record. It does not count" in said
    assert reproduce("parameters", quick, Effort(quiet=True), **options) == 0
    after = read_lines(path.parent)
    assert {key: line["record"] for key, line in after.items()} == {
        key: line["record"] for key, line in before.items()
    }
    assert (quick / "parameters.md").read_bytes() == table


LOSSES = {
    "noise": lambda record: record["result"].pop("noise"),
    "errors in noise": lambda record: record["result"]["noise"]["errors"].pop(),
    "levels": lambda record: record["result"]["noise"].pop("levels"),
    "test error": lambda record: record["result"].pop("test_error"),
    "units": lambda record: record["result"].update(active_units=None),
    "parameters": lambda record: record["result"].update(parameters=None),
    "operations": lambda record: record["result"]["operations"].pop("macs"),
    "images": lambda record: record["result"].pop("images"),
    "history": lambda record: record.pop("history"),
    "epochs": lambda record: record["history"].pop(),
    "iterations": lambda record: record["history"][1].pop("iteration"),
    "a training error": lambda record: record["history"][1].update(train_error=None),
    "samples": lambda record: record["data"].update(samples={}),
    "layers": lambda record: record["result"].update(active_units=[]),
    "what images are": lambda record: record["result"].update(images={}),
    "an image": lambda record: record["result"]["images"]["probabilities"][1].pop(),
    "a class": lambda record: record["result"]["images"]["probabilities"][0][0].pop(),
    "a size": lambda record: record["result"].update(parameters=-1),
    "the same error at the end": lambda record: record["history"][-1].update(test_error=0.99),
    "a finite size": lambda record: record["result"].update(parameters=float("inf")),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_an_incomplete_record_is_named_and_does_not_count(quick, tmp_path, capsys, lost):
    shutil.copytree(quick / "records", tmp_path / "records")
    folder = tmp_path / "records/fashion-mnist"
    lines = read_lines(folder)
    LOSSES[lost](lines["tinynet@2:60-60", "relu", 0]["record"])
    write_lines(folder, lines)
    options = {"quick": True, "seeds": 1, "run": False}
    assert reproduce("fig-noise", tmp_path, Effort(quiet=True), **options) == 0
    said = capsys.readouterr().err
    assert "relu, repetition 0 is not the whole record of a run. It does not" in said
    assert "relu on tinynet@2:60-60 (1)" in (tmp_path / "results.md").read_text(encoding="utf-8")


def test_a_record_on_another_backbone_does_not_count(quick, tmp_path, capsys):
    shutil.copytree(quick / "records", tmp_path / "records")
    folder = tmp_path / "records/fashion-mnist"
    lines = read_lines(folder)
    record = lines["tinynet@2:60-60", "relu", 0]["record"]
    backbone = lines["tinynet@2", "initial", 0]["record"]
    assert record["backbone_digest"] == backbone["backbone_digest"]
    record["backbone_digest"] = "0" * 64
    write_lines(folder, lines)
    options = {"quick": True, "seeds": 1, "run": False}
    assert reproduce("fig-noise", tmp_path, Effort(quiet=True), **options) == 0
    said = capsys.readouterr().err
    assert "relu, repetition 0 was made on another backbone than that" in said
    assert "relu on tinynet@2:60-60 (1)" in (tmp_path / "results.md").read_text(encoding="utf-8")


def test_a_target_without_protocols_has_no_pieces(tmp_path):
    with pytest.raises(InputError, match="fig-prox trains nothing"):
        reproduce("fig-prox", tmp_path, Effort(quiet=True), only=("mnist",))


def test_a_piece_may_be_a_method(tmp_path):
    options = {"quick": True, "seeds": 1, "methods": ("move-half",)}
    assert reproduce("parameters", tmp_path, Effort(quiet=True), **options) == 0
    (path,) = (tmp_path / "records").rglob(FILE)
    assert {method for _, method, _ in read_lines(path.parent)} == {"move-half"}
    with pytest.raises(InputError, match="method"):
        reproduce("parameters", tmp_path, Effort(quiet=True), **options | {"methods": ("adam",)})


def test_a_method_brings_its_own_backbones_only(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(Effort, "run", lambda _self, _matrix, runs: ran.extend(runs))
    for method, backbones in (("move-half", set()), ("bcd-hardmax", {"tinynet@3"})):
        ran.clear()
        options = {"quick": True, "seeds": 1, "methods": (method,)}
        reproduce("all", tmp_path, Effort(quiet=True), **options)
        assert {run.architecture for run in ran if run.method == "initial"} == backbones
        assert {run.data for run in ran} == {"digits"}
        assert sum(run.method == method for run in ran) == 1


def test_records_of_other_settings_stop_only_those_who_need_them(quick, tmp_path, capsys):
    shutil.copytree(quick / "records/cifar10", tmp_path / "records/cifar10")
    lines = read_lines(tmp_path / "records/cifar10")
    lines["tinynet@3:60-60", "bcd", 0]["record"]["settings"]["stochastic"]["move"] = 0.5
    write_lines(tmp_path / "records/cifar10", lines)
    options = {"quick": True, "seeds": 1, "run": False}
    with pytest.raises(InputError, match=r"move=0\.5, not 0\.08"):
        reproduce("table1", tmp_path, Effort(quiet=True), **options)
    assert reproduce("fig-prox", tmp_path, Effort(quiet=True), **options) == 0
    assert "move=0.5, not 0.08: take another" in capsys.readouterr().err
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "bcd on tinynet@3:60-60 (1)" in page


def test_a_single_target_leaves_the_page_whole(quick):
    before = (quick / "results.md").read_text(encoding="utf-8")
    assert reproduce("fig-prox", quick, Effort(quiet=True), quick=True, seeds=1) == 0
    assert (quick / "results.md").read_text(encoding="utf-8").count("## ") >= before.count(
        "## "
    ) - 1


def test_figures_do_not_ask_the_reader_s_matplotlibrc(tmp_path):
    import matplotlib as mpl

    plot_prox([], tmp_path / "one")
    with mpl.rc_context({"axes.facecolor": "black", "font.size": 30}):
        plot_prox([], tmp_path / "two")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_single_images_keep_their_probabilities(quick):
    lines = read_lines(quick / "records/fashion-mnist")
    record = lines["tinynet@2:60-60", "bcd", 0]["record"]
    images = record["result"]["images"]
    assert images["rows"] == [0, 1]
    assert len(images["probabilities"]) == len(images["levels"]) == 3
    for level in images["probabilities"]:
        assert all(sum(shares) == pytest.approx(1, abs=1e-5) for shares in level)
    assert images["levels"][0] == 0
    clean, *noisy = images["probabilities"]
    assert all(level != clean for level in noisy)
    assert record["settings"]["images"] == [0, 1]
