"""``zeroone reproduce``: protocols, tables, figures and verdicts, from records only."""

import json
import re
from dataclasses import replace
from importlib import resources

import pytest

from zeroone.experiments.cell import FAILED
from zeroone.experiments.matrix import Matrix
from zeroone.experiments.methods import METHODS
from zeroone.experiments.paper import printed
from zeroone.reproduce.claims import CONFIRMED, OPEN, REFUTED, judge
from zeroone.reproduce.comparison import compare_with_paper, percent
from zeroone.reproduce.page import write_page
from zeroone.reproduce.protocols import Protocol
from zeroone.reproduce.results import Results, open_results
from zeroone.reproduce.run import reproduce
from zeroone.reproduce.sheets import Entry, Sheet
from zeroone.reproduce.targets import TARGETS, make

PROTOCOLS = sorted({name for target in TARGETS.values() for name in target.protocols})
TEN = ["relu", "sigmoid", "swish", "selu", "tanh", "ste", "ccnn", "pcnn", "bi-real", "bcd"]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols_can_be(name, quick):
    protocol = Protocol.read(name, quick=quick)
    cells = protocol.spec.cells()
    assert cells
    assert {cell.seed for cell in cells} == set(range(protocol.spec.seeds))
    if quick:
        assert protocol.spec.data == ("digits",)
    elif name != "parameters":
        assert set(TEN) <= set(protocol.spec.methods)
    assert Protocol.read(name, quick=quick, seeds=7).spec.seeds == 7


def test_every_protocol_file_belongs_to_a_target():
    files = resources.files("zeroone.reproduce") / "protocols"
    assert {path.name for path in files.iterdir()} == {f"{p}.toml" for p in [*PROTOCOLS, "common"]}


def test_the_papers_numbers():
    assert printed("table1", "mnist-256", "bcd") == {
        "train_error": 0.306,
        "test_error": 0.634,
        "units": 3800,
        "parameters": 4294,
        "flops": 0.363,
    }
    assert printed("table2", "cifar100", "bcd")["test_top5_error"] == 26.691
    assert printed("table2", "cifar100", "pcnn") == {}
    for column in ("mnist", "mnist-256", "fashion-mnist", "cifar10"):
        assert all(len(printed("table1", column, method)) == 5 for method in TEN)


def faked(name, tmp_path, errors, *, missing=(), quick=False, **more):
    """Results whose records hold these test errors, by method, one a repetition."""
    protocol = Protocol.read(name, quick=quick)
    repetitions = max(len(values) for values in errors.values())
    protocol = replace(protocol, spec=replace(protocol.spec, seeds=repetitions))
    records = {}
    for cell in protocol.spec.cells():
        values = errors.get(cell.method, errors.get("others"))
        if cell.method in missing or values is None or len(values) <= cell.repetition:
            continue
        error = values[cell.repetition]
        kept = 0.95 if cell.method == "bcd-95" else 1.0
        history = [{"iteration": k, "train_error": error, "test_error": error} for k in range(3)]
        result = {
            "train_error": error / 2,
            "test_error": error,
            "test_top5_error": error / 10,
            "active_units": [2000 * kept, 2000 * kept],
            "parameters": 5_000_000 * kept,
            "operations": {"macs": 2e6 * kept, "additions": 4e6 * kept, "word_operations": 1e5},
            **{key: value(cell, error) for key, value in more.items()},
        }
        records[cell] = {
            "status": "completed",
            "seed": cell.seed,
            "commit": "0123456789abcdef+",
            "result": result,
            "history": history,
        }
    return Results(protocol, Matrix(protocol.spec.cells(), tmp_path / name, records))


def test_tables_show_ours_beside_the_papers(tmp_path):
    errors = {"relu": [0.006, 0.008], "bcd-95": [0.00634, 0.00634], "bcd": [0.005, 0.0052]}
    errors["others"] = [0.01, 0.01]
    results = faked("mnist-256", tmp_path, errors, missing=["pcnn"])
    (sheet,) = compare_with_paper(results)
    lines = {row[0].text: [entry.text for entry in row] for row in sheet.rows}
    marks = {row[0].text: [entry.mark for entry in row] for row in sheet.rows}
    headings = ["method", "n", "train error (%)", "paper", "test error (%)", "paper", "units"]
    assert sheet.headings[:7] == headings
    shown = ["2", "0.35 ± 0.07", "0.146", "0.70 ± 0.14", "0.69", "4,000", "4,000"]
    assert lines["ReLU"][1:8] == shown
    assert marks["ReLU"][4] == ""  # within 2% of the paper's
    assert marks["ReLU"][2] == "a"
    paper_row = lines["0/1 BCD, hardmax, 95% of the units"]
    assert paper_row[4:10] == ["0.63 ± 0.00", "0.634", "3,800", "3,800", "4,750,000", "4,294,000"]
    assert lines["0/1 BCD"][5] == ""  # the paper has one row of BCD
    assert lines["PCNN (public form)"][1:5] == ["0 of 2", "missing", "0.538", "missing"]
    assert [row[0].text for row in sheet.rows if row[4].best] == ["0/1 BCD"]
    assert set(sheet.notes) == {"a", "c", "d"}
    assert "[E8](errata.md#e8)" in sheet.notes["c"]
    markdown = sheet.markdown()
    assert "| **0.51 ± 0.01** |" in markdown
    assert "0.35 ± 0.07 a) |" in markdown
    assert "\na) " in markdown
    assert len({line.count("|") for line in markdown.splitlines() if line.startswith("|")}) == 1


def test_sheets_in_latex():
    rows = [[Entry("A_1 & co"), Entry("5% ± 1", "a", best=True)]]
    sheet = Sheet("T_1", ["method", "error (%)"], rows, {"a": "because of [E6](errata.md#e6), `x`"})
    latex = sheet.latex()
    assert r"A\_1 \& co & \textbf{5\% $\pm$ 1}$^{a}$ \\" in latex
    assert r"\begin{tabular}{lr}" in latex
    assert r"$^{a}$ because of E6, x." in latex


def test_top_5_and_no_train_column_of_the_paper_on_cifar100(tmp_path):
    results = faked("cifar100", tmp_path, {"others": [0.5], "bcd": [0.4], "bcd-95": [0.53189]})
    (sheet,) = compare_with_paper(results)
    assert "top-5 (%)" in sheet.headings
    row = next(row for row in sheet.rows if row[0].text == "0/1 BCD, 95% of the units")
    shown = dict(zip(sheet.headings, row, strict=True))
    assert (shown["test error (%)"].text, shown["test error (%)"].mark) == ("53.19", "")
    assert shown["top-5 (%)"].text == "5.32"


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ([0.005, 0.0051, 0.0049], [0.007, 0.0071, 0.0069], CONFIRMED),
        ([0.007, 0.0071, 0.0069], [0.005, 0.0051, 0.0049], REFUTED),
        ([0.005, 0.009], [0.0051, 0.0088], OPEN),
        ([0.005], [0.007], OPEN),  # one seed decides nothing
    ],
)
def test_the_lowest_error_needs_more_than_its_spread(tmp_path, ours, theirs, verdict):
    errors = {"bcd": ours, "bcd-95": [0.02] * len(ours), "others": theirs}
    (judged,) = [
        v for v in judge({"mnist-256": faked("mnist-256", tmp_path, errors)}) if "256" in v.claim
    ]
    assert judged.verdict == verdict
    assert f"{100 * sum(ours) / len(ours):.2f}" in judged.evidence
    assert f"n = {len(ours)}" in judged.evidence


def test_a_small_network_with_a_loss_is_not_what_was_claimed(tmp_path):
    for loss, verdict in ((0.0, CONFIRMED), (0.01, REFUTED)):
        errors = {"bcd-95": [0.01 + loss, 0.011 + loss], "others": [0.01, 0.011]}
        judged = judge({"mnist-256": faked("mnist-256", tmp_path, errors)})
        assert next(v for v in judged if "fewest" in v.claim).verdict == verdict


def test_verdicts_on_noise_parameters_and_the_initial_process(tmp_path):
    def noise(factor):
        return lambda cell, error: {
            "part": "test",
            "levels": [0, 0.1],
            "errors": [error, error * (factor if cell.method == "bcd" else 2)],
        }

    errors = {"bcd": [0.1, 0.11], "others": [0.1, 0.11]}
    for factor, verdict in ((1.5, CONFIRMED), (3, REFUTED)):
        results = faked("fashion-mnist", tmp_path, errors, noise=noise(factor))
        judged = judge({"fashion-mnist": results})
        assert next(v for v in judged if "robust" in v.claim).verdict == verdict
    for worst, verdict in ((0.022, CONFIRMED), (0.05, REFUTED)):
        errors = {"bcd": [0.02, 0.02], "step-double": [worst, worst], "others": [0.02, 0.02]}
        judged = judge({"parameters": faked("parameters", tmp_path, errors)})
        assert next(v for v in judged if "parameters would" in v.claim).verdict == verdict
    results = faked("initial-256", tmp_path, {"others": [0.01]})
    for record, cell in ((results.matrix.records[c], c) for c in results.matrix.records):
        record["result"]["test_error"] = 0.03 if "@0" in cell.architecture else 0.01
    judged = judge({"initial-256": results})
    assert next(v for v in judged if "initial process" in v.claim).verdict == CONFIRMED
    assert all(v.verdict == OPEN for v in judge({}))


def test_the_page_says_what_is_missing_and_who_made_the_rest(tmp_path):
    errors = {"relu": [0.01, 0.01], "bcd": [0.02]}
    results = {"cifar100": faked("cifar100", tmp_path, errors)}
    made = {"table2": make("table2", [results["cifar100"]], tmp_path, None)}
    (tmp_path / "docs").mkdir()
    write_page(tmp_path / "docs/page.md", made, results, tmp_path, quick=False)
    page = (tmp_path / "docs/page.md").read_text(encoding="utf-8")
    assert "Missing of CIFAR-100, ResNet-18: sigmoid on resnet18@10 (2)" in page
    assert "bcd on resnet18@10 (1)." in page
    assert "012345678+" in page
    assert "zeroone reproduce table2\n" in page
    assert "the records in `../records`" in page


def test_a_failed_cell_is_missing_not_averaged(tmp_path):
    results = faked("mnist-256", tmp_path, {"others": [0.01, 0.02], "bcd": [0.01, 0.5]})
    cell = next(c for c in results.matrix.cells if (c.method, c.repetition) == ("bcd", 1))
    results.matrix.records[cell] |= {"status": FAILED, "reason": "out of memory"}
    (sheet,) = compare_with_paper(results)
    row = next(row for row in sheet.rows if row[0].text == "0/1 BCD")
    assert [entry.text for entry in row[1:5:3]] == ["1 of 2", "1.00"]
    assert cell in results.lacking


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """All targets on digits, one seed."""
    out = tmp_path_factory.mktemp("reproduce")
    from zeroone.experiments.compare import Effort

    assert reproduce("all", out, Effort(quiet=True), quick=True, seeds=1) == 0
    return out


def test_everything_is_made_of_records(quick):
    page = (quick / "results.md").read_text(encoding="utf-8")
    assert "Missing" not in page
    assert "missing" not in page
    for name, target in TARGETS.items():
        assert f"## {target.title}" in page
        kinds = ("md", "tex") if target.plot is None else ("png", "svg")
        for kind in kinds:
            assert (quick / f"{name}.{kind}").stat().st_size > 100
    assert (quick / "fig-noise-images.svg").is_file()
    for label in (METHODS[name].label for name in TEN):
        assert page.count(f"| {label} |") >= 5
    for figure in re.findall(r"!\[.*\]\((.*)\)", page):
        assert (quick / figure).is_file()


def test_the_same_records_make_the_same_tables_and_figures(quick, capsys):
    from zeroone.experiments.compare import Effort

    names = [*quick.glob("*.md"), *quick.glob("*.tex"), *quick.glob("*.svg"), *quick.glob("*.png")]
    before = {path: path.read_bytes() for path in names}
    assert reproduce("all", quick, Effort(quiet=True), quick=True, seeds=1, run=False) == 0
    assert before == {path: path.read_bytes() for path in before}
    assert len(before) > 12


def test_a_corrupt_record_is_named_and_redone(quick, capsys):
    from zeroone.experiments.compare import Effort

    path = quick / "records/parameters/digits/f3nn_60-60/bcd/0.json"
    before = path.read_bytes()
    table = (quick / "parameters.md").read_bytes()
    path.write_bytes(before[: len(before) // 2])
    options = {"quick": True, "seeds": 1}
    assert reproduce("parameters", quick, Effort(quiet=True), **options, run=False) == 0
    assert "bcd on f3nn:60-60 (1)" in (quick / "results.md").read_text(encoding="utf-8")
    assert "bcd/0.json is not a readable record" in capsys.readouterr().err
    assert reproduce("parameters", quick, Effort(quiet=True), **options) == 0
    assert path.read_bytes() == before
    assert (quick / "parameters.md").read_bytes() == table


def test_single_images_keep_their_probabilities(quick):
    path = quick / "records/fashion-mnist/digits/tinynet@2_60-60/bcd/0.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    images = record["result"]["images"]
    assert images["rows"] == [0, 1]
    assert len(images["probabilities"]) == len(images["levels"]) == 3
    for level in images["probabilities"]:
        assert all(sum(shares) == pytest.approx(1, abs=1e-5) for shares in level)
    assert record["settings"]["images"] == [0, 1]


def test_percent():
    assert percent({"mean": 0.0058, "deviation": 0.0004}) == "0.58 ± 0.04"
    assert percent({"mean": 0.0058, "deviation": None}) == "0.58"


def test_open_results_without_records(tmp_path):
    results = open_results(Protocol.read("mnist"), tmp_path / "none", print, None)
    assert results.lacking
    assert results.dates is None
    assert results.row("bcd") is None
