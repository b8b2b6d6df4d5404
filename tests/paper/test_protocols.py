"""Protocols that can be run, and the numbers that the paper prints."""

from importlib import resources

import pytest
from results_made_up import PROTOCOLS, TEN

from paper.printed_numbers import printed
from paper.reproduce.protocols import Protocol
from paper.reproduce.results import open_results


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols_can_be(name, quick):
    protocol = Protocol.read(name, quick=quick)
    runs = protocol.spec.runs()
    assert runs
    assert {run.seed for run in runs} == set(range(protocol.spec.seeds))
    if quick:
        assert protocol.spec.data == ("digits",)
    elif name not in {"parameters", "printed"}:
        assert set(TEN) <= set(protocol.spec.methods)
    assert Protocol.read(name, quick=quick, seeds=7).spec.seeds == 7


def test_every_protocol_file_belongs_to_a_target():
    files = resources.files("paper.reproduce") / "protocols"
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


def test_the_papers_text_on_training_errors_is_not_that_of_its_tables():
    """Erratum E13."""
    lowest = {"cifar10": ("relu", "bcd"), "fashion-mnist": ("swish", "bi-real")}
    for column, (in_the_text, in_the_table) in lowest.items():
        errors = {method: printed("table1", column, method)["train_error"] for method in TEN}
        assert min(errors, key=errors.get) == in_the_table
        assert errors[in_the_table] < errors[in_the_text]


def test_open_results_without_records(tmp_path):
    results = open_results(Protocol.read("mnist"), tmp_path, print, None)
    assert results.lacking
    assert results.dates is None
    assert results.row("bcd") is None
