"""The run matrix: what it reads, its seeds, failures that stay alone, records to be trusted."""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from zeroone.baselines.activations import ACTIVATIONS
from zeroone.checks import InputError
from zeroone.experiments.architectures import Architecture
from zeroone.experiments.board import _table, board
from zeroone.experiments.cell import Cell, run_cell
from zeroone.experiments.compare import compare
from zeroone.experiments.matrix import Matrix
from zeroone.experiments.methods import METHODS
from zeroone.experiments.paper import paper_flops
from zeroone.experiments.spec import Spec
from zeroone.experiments.tables import failures, print_summary, summarise
from zeroone.experiments.workers import (
    Ended,
    Progress,
    _deaf_to_interrupts,
    fitting_jobs,
    run_tasks,
    usable_cores,
)
from zeroone.network import load

SPEC = """
data = ["digits"]
architectures = ["f3nn:8-6"]
methods = ["relu", "bcd", "wild"]
seeds = 2
noise = [0, 0.5]
[train]
epochs = 2
[rivals]
smoothing = 0.0
[variants.wild]
method = "relu"
learning_rate = 1e30
label = "ReLU, far too fast"
"""


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return Spec.read(path)


def made_up(method="relu", repetition=0):
    return Cell("digits", "f3nn:8-6", method, repetition, rival=True, options={"epochs": 1})


def whole(cell, error=0.25, **result):
    """The record of a cell that was never trained."""
    result |= {"train_error": error, "test_error": error, "active_units": [8, 6], "parameters": 700}
    result["operations"] = {"macs": 5, "additions": 4, "word_operations": 3}
    return cell.new_record() | {
        "status": "completed",
        "data": {"samples": {"train": 200, "test": 100}},
        "n_iter": 0,
        "result": result,
        "history": [{"iteration": 0, "train_error": error, "test_error": error}],
    }


def pretend(cell, callbacks):
    """Work that ends as the cell's method says."""
    if cell.method == "ccnn":
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 4 bytes")
    if cell.method == "pcnn":
        os.kill(os.getpid(), signal.SIGKILL)
    if cell.method == "tanh":
        os._exit(3)
    if cell.method == "selu":
        raise InputError("the data are not to its taste.")
    if cell.method == "swish":
        raise ZeroDivisionError("one\ntwo")
    if cell.method == "bi-real":  # dies in the middle of a sentence
        os.write(callbacks[0].pipe.fileno(), b"\0\0\1\0half")
        os.kill(os.getpid(), 35)
    threads = [torch.get_num_threads(), int(os.environ["OMP_NUM_THREADS"])]
    return {"record": whole(cell) | {"threads": threads}, "seconds": [1.0, 3.0, 2.0]}


def test_a_spec_names_its_cells(spec):
    cells = spec.cells()
    assert [str(cell) for cell in cells[:4]] == [
        "digits, f3nn:8-6, relu, repetition 0",
        "digits, f3nn:8-6, bcd, repetition 0",
        "digits, f3nn:8-6, wild, repetition 0",
        "digits, f3nn:8-6, relu, repetition 1",
    ]
    relu, bcd, wild = (cell.describe() for cell in cells[:3])
    assert relu["epochs"] == bcd["stochastic"]["epochs"] == 2
    assert "stochastic" not in relu
    assert relu["rival"]["smoothing"] == wild["rival"]["smoothing"] == 0
    assert wild["rival"]["learning_rate"] == 1e30
    assert wild["rival"]["activation"] == "relu"
    assert "rival" not in bcd
    assert bcd["hidden"] == relu["hidden"] == [8, 6]
    assert str(cells[2].path) == "digits/f3nn_8-6/wild/0.json"


def test_seeds_come_from_all_four():
    cell = made_up()
    others = [
        replace(cell, data="mnist"),
        replace(cell, architecture="f3nn:8-7"),
        replace(cell, method="tanh"),
        replace(cell, repetition=1),
    ]
    assert len({c.seed for c in [cell, *others]}) == 5
    assert replace(cell, options={"epochs": 7}).seed == cell.seed
    assert cell.seed == 387062914  # on every machine
    assert cell.settings.seed == cell.seed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f3nn", (None, (2000, 2000))),
        ("f3nn:1000-500-20", (None, (1000, 500, 20))),
        ("convnet", ("small", (2000, 2000))),
        ("lenet", (None, ("conv5x5:32:max2", "conv5x5:64:max2", 500))),
        ("resnet18", ("resnet18", (1500, 1500))),
        ("resnet18-3x3:64", ("resnet18-3x3", (64,))),
        ("convnet@5", ("small", (2000, 2000), 5)),
        ("convnet@2:30-20", ("small", (30, 20), 2)),
    ],
)
def test_architectures(text, expected):
    assert Architecture.parse(text) == Architecture(*expected)


def test_a_body_without_initial_process_has_bits_as_well():
    assert Architecture.parse("convnet:9").bits == (
        "conv3x3:32:max2",
        "conv3x3:64:max2",
        "conv3x3:64",
        9,
    )
    assert Architecture.parse("convnet@1:9").bits == (9,)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"architectures": ["f3nn:"]}, "written like f3nn:1000-1000"),
        ({"architectures": ["f3nn:10x10"]}, "written like f3nn:1000-1000"),
        ({"architectures": ["f4nn"]}, "unknown architecture 'f4nn'.*Did you mean 'f3nn'"),
        ({"architectures": ["f3nn@3"]}, "f3nn has no body that an initial process could train"),
        ({"architectures": ["convnet@"]}, "written like convnet:1000-1000"),
        (
            {"architectures": ["convnet@1"], "initial": {"epochs": 3}},
            "unknown option of an initial process 'epochs'",
        ),
        (
            {"architectures": ["convnet@1"], "initial": {"bach": 3}},
            "unknown option of an initial process 'bach'.*Did you mean 'batch'",
        ),
        ({"architectures": ["convnet@1"], "initial": {"batch": 1}}, "batch must be a whole number"),
        ({"methods": ["rleu"]}, "unknown method 'rleu'.*Did you mean 'relu'"),
        ({"methods": []}, "needs methods, a list of names"),
        ({"data": "digits"}, "needs data, a list of names"),
        ({"data": [1]}, "needs data, a list of names"),
        ({"method": ["relu"]}, "unknown entry of a run matrix 'method'.*'methods'"),
        ({"seeds": 0}, "seeds must be a whole number"),
        ({"noise": [-1]}, "every noise level must be zero or a positive number"),
        ({"noise": 0.1}, "noise must be a list"),
        ({"train": {"epoch": 3}}, "unknown option .*'epoch'.*Did you mean 'epochs'"),
        ({"train": 3}, r"train must be a table of a run matrix, \[train\]"),
        ({"rivals": {"learning_rate": -1}}, "learning_rate must be a positive number"),
        ({"variants": {"mine": {"epochs": 3}}}, "'mine' must say which method it is like"),
        ({"variants": {"mine": {"method": "mine"}}}, "unknown method 'mine'"),
        ({"variants": {"relu": {"method": "tanh"}}}, "'relu' is a method already"),
        (
            {"variants": {"mine": {"method": "tanh", "learning_rat": 1}}},
            "Did you mean 'learning_rate'",
        ),
        (
            {"variants": {"mine": {"method": "tanh", "batch_norm": "false"}}},
            "batch_norm must be true",
        ),
        ({"variants": {"mine": 3}}, "'mine' must say which method it is like"),
        ({"train": {"hidden": [3]}}, r"hidden in \[train\] would contradict the architecture"),
        ({"train": {"seed": 3}}, r"seed in \[train\] would contradict the seed"),
        ({"rivals": {"activation": "tanh"}}, "would contradict the method"),
        ({"train": {"keep": 0.5}}, "unknown option of a network trained by Adam 'keep'"),
        ({"noise": [[0.1]]}, "noise must be a list of levels"),
        ({"seeds": [[1]]}, "seeds must be a whole number"),
        ({"label": 3}, "label must be the name of a column"),
    ],
)
def test_specs_that_cannot_be(change, sentence):
    content = {"data": ["digits"], "architectures": ["f3nn:8"], "methods": ["relu", "bcd"]}
    with pytest.raises(InputError, match=sentence):
        Spec.from_dict(content | change).cells()


def test_spec_files_that_cannot_be(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*none\.toml"):
        Spec.read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("data = [")
    with pytest.raises(InputError, match=r"bad\.toml is not a TOML file"):
        Spec.read(tmp_path / "bad.toml")


def test_the_specs_of_the_repository_are_valid():
    folder = Path(__file__).parent.parent / "experiments"
    paths = list(folder.glob("*.toml"))
    assert paths
    for path in paths:
        assert Spec.read(path).cells()


def test_failures_stay_alone_and_run_again(tmp_path):
    """Out of memory, killed, gone without a word: recorded with the reason, the others go on."""
    bad = ["ccnn", "pcnn", "tanh", "selu", "swish", "bi-real"]
    cells = [made_up(method) for method in [*bad, "relu"]]
    matrix = Matrix.open(cells, tmp_path)
    events = []
    matrix.run(matrix.missing, jobs=2, work=pretend, watch=events.append)
    assert [type(event) for event in events] == [Ended] * 7
    assert [cell.method for cell in matrix.failed] == bad
    reasons = {cell.method: record.get("reason", "") for cell, record in matrix.records.items()}
    assert "out of memory" in reasons["ccnn"]
    assert reasons["pcnn"] == "its process was ended by SIGKILL, perhaps for want of memory"
    assert "exit code 3" in reasons["tanh"]
    assert reasons["selu"] == "the data are not to its taste."
    assert reasons["swish"] == "ZeroDivisionError: one"
    assert reasons["bi-real"] == "its process was ended by signal 35"
    good = matrix.records[cells[-1]]
    assert good["result"] == whole(cells[-1])["result"]
    assert good["threads"] == [1, 1]
    assert matrix.times() == {cells[-1]: 2.0}

    again = Matrix.open(cells, tmp_path)
    assert again.missing == []
    assert again.records == matrix.records
    again.run([cell for cell in again.failed if cell.method == "selu"], jobs=1, work=run_cell)
    assert again.records[made_up("selu")]["status"] == "completed"
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [entry["method"] for entry in log].count("selu") == 2
    rows = summarise(again)
    assert len(failures(rows)) == 5
    assert {row["method"]: row["n"] for row in rows}["selu"] == 1


def test_two_runs_give_the_same_record_to_the_bit(spec, tmp_path):
    """And a loss that is no number is a failure with a reason."""
    cells = spec.cells()[:3]
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        matrix = Matrix.open(cells, folder)
        matrix.run(matrix.missing, jobs=2)
        contents.append({cell: (folder / cell.path).read_bytes() for cell in cells})
    assert contents[0] == contents[1]
    relu, bcd, wild = (matrix.records[cell] for cell in cells)
    for record in (relu, bcd):
        assert record["status"] == "completed"
        assert record["result"]["noise"]["levels"] == [0, 0.5]
        assert record["result"]["noise"]["errors"][0] == record["result"]["test_error"]
        assert record["result"]["operations"]["macs"] > 0
        assert len(record["history"]) == 3
        assert "seconds" not in json.dumps(record)
    assert wild["status"] == "failed"
    assert "the loss was no longer finite in epoch" in wild["reason"]
    assert wild["history"]


def test_a_damaged_record_is_named_and_made_again(tmp_path):
    cell = made_up()
    path = tmp_path / cell.path
    path.parent.mkdir(parents=True)
    path.write_text('{"schema": 1, "status"')
    said = []
    matrix = Matrix.open([cell], tmp_path, said.append)
    assert matrix.missing == [cell]
    assert said == [f"{path} is not a readable record. It does not count: its cell is missing."]
    for content in ('{"schema": 99}', '{"schema": 1}', '{"schema": 1, "status": "failed"}'):
        path.write_text(content)
        assert Matrix.open([cell], tmp_path, said.append).missing == [cell]


def test_records_of_other_settings_are_not_mixed_in(tmp_path):
    cell = made_up()
    matrix = Matrix.open([cell], tmp_path)
    matrix.run([cell], jobs=1, work=pretend)
    other = replace(cell, options={"epochs": 2, "learning_rate": 0.5})
    with pytest.raises(InputError, match=r"was made with epochs=1, not 2: take another folder"):
        Matrix.open([other], tmp_path)
    other = replace(cell, options={"epochs": 1, "learning_rate": 0.5})
    with pytest.raises(InputError, match=r"was made with rival\.learning_rate=0\.001, not 0\.5"):
        Matrix.open([other], tmp_path)


def test_records_of_other_code_are_named(tmp_path):
    cell, said = made_up(), []
    keep_made_up(Matrix([cell], tmp_path, {}), cell)
    Matrix.open([cell], tmp_path, said.append)
    assert said == []
    path = tmp_path / cell.path
    path.write_text(path.read_text().replace(torch.__version__, "1.0"))
    assert list(Matrix.open([cell], tmp_path, said.append).records) == [cell]
    assert "1 of 1 records" in said[0]
    assert "made by other code" in said[0]


def test_a_folder_has_one_run_at_a_time(tmp_path):
    cell = made_up()
    with FileLock(tmp_path / ".lock"), pytest.raises(InputError, match="another run is at work"):
        Matrix.open([cell], tmp_path).run([cell], jobs=1)


def test_no_two_cells_share_a_record():
    names = ["a b", "a_b", "a/b", "..", "m_ine.csv", "m/ine.csv", "a.b", "a-b", "ä"]
    paths = [replace(made_up(), data=name).path for name in names]
    assert len(set(paths)) == len(names)
    assert all(".." not in path.parts and len(path.parts) == 4 for path in paths)
    assert len({made_up(name).path for name in names}) == len(names)


def test_no_more_threads_than_cores():
    cores = usable_cores()
    assert fitting_jobs(None, 1) == cores
    assert fitting_jobs(None, cores) == 1
    assert fitting_jobs(None, 10 * cores) == 1
    assert fitting_jobs(10 * cores, 1) == cores
    assert fitting_jobs(1, 1) == 1


def report_for_ever(task, callbacks):
    Path(task).write_text(str(os.getpid()))
    callbacks[0].on_start(0, 1)
    while True:
        callbacks[0].on_batch(1, 1, 10**6)
        time.sleep(0.05)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_leaving_the_loop_ends_the_processes(tmp_path):
    task = tmp_path / "pid"
    events = run_tasks(report_for_ever, [str(task)], jobs=1, threads=1)
    assert isinstance(next(events), Progress)
    pid = int(task.read_text())
    events.close()
    if Path("/proc").is_dir():
        wait_until(lambda: not alive(pid))


def test_a_process_that_nobody_listens_to_ends_without_a_word():
    """As after a Ctrl-C that came while it started."""
    code = """
from multiprocessing import Pipe
from zeroone.experiments.workers import _child
reader, writer = Pipe(duplex=False)
reader.close()
_child(print, "it worked", 1, writer)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_a_killed_parent_leaves_no_children(tmp_path):
    if not Path("/proc").is_dir():
        return
    task = tmp_path / "pid"
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "if __name__ == '__main__':\n"
        "    from test_matrix import report_for_ever, run_tasks\n"
        f"    for _ in run_tasks(report_for_ever, [{str(task)!r}], jobs=1, threads=1): pass\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    parent = subprocess.Popen([sys.executable, str(script)])
    wait_until(lambda: task.exists() and task.read_text())
    parent.kill()
    parent.wait()
    wait_until(lambda: not alive(int(task.read_text())))


def filled(spec, tmp_path):
    """A matrix whose second relu cell failed and whose others are made up."""
    matrix = Matrix.open(spec.cells(), tmp_path)
    for cell in spec.cells():
        if cell.method == "relu" and cell.repetition == 1:
            matrix._keep(Ended(cell, 1.0, failure="it rained", details="line 1"))
        elif cell.method != "wild":
            keep_made_up(matrix, cell)
    return matrix


def keep_made_up(matrix, cell):
    noise = {"part": "test", "levels": [0, 0.5], "errors": [0.01, 0.1]}
    record = whole(cell, 0.01 + 0.02 * cell.repetition, noise=noise)
    matrix._keep(Ended(cell, 1.0, {"record": record, "seconds": [0.5]}))


def test_tables(spec, tmp_path, capsys):
    rows = summarise(filled(spec, tmp_path), spec.known_methods)
    relu, bcd, wild = rows
    assert (relu["n"], relu["planned"], relu["failed"]) == (1, 2, ["it rained"])
    assert relu["test_error"] == {"mean": 0.01, "deviation": None, "values": [0.01]}
    assert bcd["seeds"] == [spec.cells()[1].seed, spec.cells()[4].seed]
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
    cell = Cell("mnist", "convnet", "ste", 0, rival=True)
    matrix = Matrix([cell], tmp_path, {})
    keep_made_up(matrix, cell)
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
    cell = spec.cells()[2]
    table = _table(matrix, {cell: Progress(cell, 0.4, 0.123)})
    assert table.title == "4 of 6 cells"
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
    with board(matrix, 6) as watch:
        watch(Progress(spec.cells()[0], 0.5))
        for cell in matrix.records:
            watch(Ended(cell, 12.3))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1/6 digits, f3nn:8-6, relu, repetition 0 (12 s): test error 1.00%"
    assert "2/6 digits, f3nn:8-6, bcd" in lines[1]
    assert any("failed: it rained" in line for line in lines)
    with board(matrix, 6, quiet=True) as watch:
        watch(Ended(cell, 1.0))
    assert capsys.readouterr().err == ""


def test_markup_in_names_is_printed_as_it_is(spec, tmp_path, capsys):
    matrix = filled(spec, tmp_path)
    labels = {name: replace(m, label="x [/red] [sign]") for name, m in spec.known_methods.items()}
    print_summary(summarise(matrix, labels))
    assert "x [/red] [sign]" in capsys.readouterr().out


def test_methods_are_what_they_say():
    activations = {}
    for name, method in METHODS.items():
        described = Cell("digits", "f3nn:8", name, 0, method.rival, method.options).describe()
        activations[name] = described.get("rival", {}).get("activation")
        if name in ACTIVATIONS:
            assert activations[name] == name
    assert set(ACTIVATIONS) <= set(METHODS)
    assert [n for n, a in activations.items() if a is None] == ["bcd", "bcd-hardmax", "bcd-half"]
    assert activations["ste-bn"] == "ste"
    assert METHODS["ste-bn"].options["batch_norm"]


def test_ctrl_c_while_a_process_starts_is_not_lost():
    heard = []

    def interrupted_start():
        with _deaf_to_interrupts():
            # To this thread: another one could take it, and pass it on at any later time.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            heard.append("not yet")

    with pytest.raises(KeyboardInterrupt):
        interrupted_start()
    assert heard == ["not yet"]


@pytest.mark.parametrize(
    "change",
    [
        {"result": None},
        {"result": {}},
        {"result": {"test_error": None}},
        {"result": {"test_error": "0.1"}},
        {"result": {"test_error": 17}},
        {"result": {"test_error": float("nan")}},
        {"status": "interrupted"},
        {"status": "failed", "reason": None},
        {"settings": None},
        {"seed": None},
        {"history": []},
        {"history": None},
        {"history": [{"iteration": 0}]},
        {"data": None},
        {"data": {"samples": {"test": 100}}},
        {"data": {"samples": {"train": 200, "test": 100, "validation": 10}}},
        {"n_iter": 1},
    ],
)
def test_a_record_that_no_cell_can_have_written_does_not_count(tmp_path, change):
    cell = made_up()
    path = tmp_path / cell.path
    path.parent.mkdir(parents=True)
    good = whole(cell)
    if change.get("result"):
        change = {"result": good["result"] | change["result"]}
    path.write_text(json.dumps(good))
    assert Matrix.open([cell], tmp_path).missing == []
    path.write_text(json.dumps(good | change))
    said = []
    assert Matrix.open([cell], tmp_path, said.append).missing == [cell]
    assert "is not the whole record of a cell" in said[0]


def test_cells_on_a_body_that_has_become_another_are_run_again(tmp_path):
    """As after a store was lost, and filled again on another machine."""
    spec = Spec(("digits",), ("tinynet@1:8",), ("relu", "tanh"), train={"epochs": 1, "batch": 100})
    cells = spec.cells()
    body, relu, tanh = cells
    matrix = Matrix.open(cells, tmp_path / "records", store=tmp_path / "store")
    matrix.run([body, relu], jobs=1)
    before = dict(matrix.records)
    folder = replace(body, store=tmp_path / "store").body_folder
    network = load(folder / "model.safetensors")
    network.operators[0].weight.mul_(2)
    network.save(folder / "model.safetensors")
    matrix.run([tanh], jobs=1)
    assert matrix.missing == []
    digests = {record["body_digest"] for record in matrix.records.values()}
    assert len(digests) == 1
    assert digests != {before[body]["body_digest"]} == {before[relu]["body_digest"]}
    said = []
    assert Matrix.open(cells, tmp_path / "records", said.append).missing == []
    assert said == []


def test_folds_have_no_training_to_look_at(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    accuracy = importlib.import_module("accuracy")
    cell = accuracy.Folds("digits", "f3nn:256-256", "bcd", 0)
    matrix = Matrix.open([cell], tmp_path)
    record = cell.new_record() | {"status": "completed", "result": {"test_error": 0.02}}
    matrix._keep(Ended(cell, 1.0, {"record": record, "seconds": []}))
    assert Matrix.open([cell], tmp_path).missing == []
    assert not cell.can_have_written(record | {"result": {}})
    matrix._keep(Ended(cell, 1.0, failure="it rained"))
    assert Matrix.open([cell], tmp_path).failed == [cell]


def test_a_script_without_its_guard_is_told(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from zeroone.experiments.compare import compare\n"
        "from zeroone.experiments.spec import Spec\n"
        "compare(Spec(('digits',), ('f3nn:4',), ('bcd',), train={'epochs': 1}), Path('out'))\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "under if __name__ == '__main__':" in done.stderr.splitlines()[-1]
    assert not list((tmp_path / "out").rglob("*.json"))


def test_processes_end_with_their_parent(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\n"
        "from pathlib import Path\n"
        "from zeroone.experiments.workers import run_tasks\n"
        "def work(task, callbacks):\n"
        "    Path('child').write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    list(run_tasks(work, [1], jobs=1, threads=1))\n"
    )
    parent = subprocess.Popen([sys.executable, script], cwd=tmp_path, stderr=subprocess.DEVNULL)
    pid = ""
    while not pid:
        time.sleep(0.1)
        if (tmp_path / "child").exists():
            pid = (tmp_path / "child").read_text()
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()


def test_images_to_look_at_must_be_there(tmp_path):
    spec = Spec(("digits",), ("f3nn:4",), ("bcd",), noise=(0.1,), images=(0, 360))
    with pytest.raises(InputError, match="no test sample 360 to look at, digits has 360"):
        compare(spec, tmp_path / "out")


def test_tables_of_options_are_read_even_if_no_row_uses_them():
    with pytest.raises(InputError, match="unknown option 'kep'"):
        Spec(("digits",), ("f3nn:4",), ("relu",), bcd={"kep": 0.5}).cells()
    with pytest.raises(InputError, match="unknown option of a network trained by Adam 'rate'"):
        Spec(("digits",), ("f3nn:4",), ("bcd",), rivals={"rate": 0.5}).cells()
