"""The paper's tables with ours beside them, as Markdown and LaTeX."""

from results_made_up import faked

from paper.reproduce.comparison import (
    compare_with_paper,
    percent,
)
from paper.reproduce.text_tables import Entry, TextTable


def test_tables_show_ours_beside_the_papers(tmp_path):
    errors = {"relu": [0.006, 0.008], "bcd-95": [0.00634, 0.00634], "bcd": [0.005, 0.0052]}
    errors["others"] = [0.01, 0.01]
    results = faked("mnist-256", tmp_path, errors, missing=["pcnn"])
    (table,) = compare_with_paper(results)
    lines = {row[0].text: [entry.text for entry in row] for row in table.rows}
    marks = {row[0].text: [entry.mark for entry in row] for row in table.rows}
    headings = ["method", "n", "train error (%)", "paper", "test error (%)", "paper", "units"]
    assert table.headings[:7] == headings
    shown = ["2", "0.35 ± 0.07", "0.146", "0.70 ± 0.14", "0.690", "4,000", "4,000"]
    assert lines["ReLU"][1:8] == shown
    assert marks["ReLU"][4] == ""  # within 2% of the paper's
    assert marks["ReLU"][2] == "a"
    paper_row = lines["0/1 BCD, hardmax, 95% of the units"]
    assert paper_row[4:10] == ["0.63 ± 0.00", "0.634", "3,800", "3,800", "4,750,000", "4,294,000"]
    assert lines["0/1 BCD"][5] == ""  # the paper has one row of BCD
    assert lines["PCNN (public form)"][1:5] == ["0 of 2", "missing", "0.538", "missing"]
    assert not any(row[4].best for row in table.rows)  # a missing one could be better
    assert set(table.notes) == {"a", "b", "d", "e", "f", "g"}
    assert "[E8](errata.md#e8)" in table.notes["e"]
    # Its units are the paper's, and yet no finding.
    assert marks["0/1 BCD, hardmax, 95% of the units"][2:10:2] == ["b", "", "d", "f"]
    assert "asked for" in table.notes["d"]
    assert "226" in table.notes["f"]
    markdown = table.markdown()
    assert "| 0.51 ± 0.01 |" in markdown
    assert "0.35 ± 0.07 a) |" in markdown
    assert "\na) " in markdown
    assert len({line.count("|") for line in markdown.splitlines() if line.startswith("|")}) == 1


def test_the_lowest_error_of_a_complete_table_is_in_bold(tmp_path):
    errors = {"others": [0.01, 0.01], "initial": [0.001, 0.001], "bcd": [0.005, 0.0052]}
    (table,) = compare_with_paper(faked("mnist-256", tmp_path, errors))
    assert [row[0].text for row in table.rows if row[4].best] == ["0/1 BCD"]
    assert "| **0.51 ± 0.01** |" in table.markdown()


def test_text_tables_in_latex():
    rows = [[Entry("A_1 & co"), Entry("5% ± 1", "a", best=True)]]
    table = TextTable(
        "T_1", ["method", "error (%)"], rows, {"a": "because of [E6](errata.md#e6), `x`"}
    )
    latex = table.latex()
    assert r"A\_1 \& co & \textbf{5\% $\pm$ 1}$^{a}$ \\" in latex
    assert r"\begin{tabular}{lr}" in latex
    assert r"$^{a}$ because of E6, x." in latex


def test_top_5_and_no_train_column_of_the_paper_on_cifar100(tmp_path):
    results = faked("cifar100", tmp_path, {"others": [0.5], "bcd": [0.4], "bcd-95": [0.53189]})
    (table,) = compare_with_paper(results)
    assert "top-5 error (%)" in table.headings
    row = next(row for row in table.rows if row[0].text == "0/1 BCD, 95% of the units")
    shown = dict(zip(table.headings, row, strict=True))
    assert (shown["test error (%)"].text, shown["test error (%)"].mark) == ("53.19", "")
    assert shown["top-5 error (%)"].text == "5.32"


def test_percent():
    assert percent({"mean": 0.0058, "deviation": 0.0004}) == "0.58 ± 0.04"
    assert percent({"mean": 0.0058, "deviation": None}) == "0.58"
