import json

from zeroone.commands.console import print_results, stages
from zeroone.utils import records


def test_values_that_are_not_finite_become_null(tmp_path):
    record = {"a": [1.0, float("nan")], "b": {"c": float("inf")}, "d": "text", "e": (1, 2)}
    path = records.write_record(tmp_path / "r.json", record)
    assert json.loads(path.read_text()) == {
        "a": [1.0, None],
        "b": {"c": None},
        "d": "text",
        "e": [1, 2],
    }


def test_the_commit_is_none_outside_a_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "__file__", str(tmp_path / "utils/records.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert records.commit() is None


def test_quiet_progress_reports_nothing():
    with stages("x", quiet=True) as (callbacks,):
        assert callbacks == []


def test_a_run_without_test_part_and_without_hidden_layers_prints(capsys):
    result = {"train_error": 0.5, "active_units": [], "parameters": 1234, "seconds": 1.0}
    print_results("title", {"name": {"result": result}})
    printed = capsys.readouterr().out
    assert "50.00%" in printed
    assert "1,234" in printed
