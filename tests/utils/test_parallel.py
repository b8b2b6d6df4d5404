"""Several ranks do what one does; data in shards; a rank that is lost."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import rank
from zeroone.data.load import load_data
from zeroone.data.shards import shard, write_shards
from zeroone.utils import parallel
from zeroone.utils.checks import InputError
from zeroone.utils.parallel import ALONE, LostRankError, Team

SIZES = (1, 2, 4)
BY_FOUR = (
    "dense",
    "images",
    "stream",
    "pruned",
    "weighted",
    "uneven-longer",
    "exact-uneven",
)  # that four ranks do, too: they share two cores
BATCHES = {
    "dense": {"hidden": [30, 20], "settings": {}},
    "stream": {"hidden": [30, 20, "20:stream"], "settings": {}},
    "images": {"hidden": ["conv3x3:6:pad1:max2", "conv2x2:5", 12], "settings": {}},
    "pruned": {"hidden": [30, 20], "settings": {"keep": 0.5, "weights": "ternary"}},
    "priced": {"hidden": [30, 20], "settings": {"lam": 0.2}},
    "weighted": {"hidden": [100, 20], "settings": {}, "weighted": True},
}
STOCHASTIC = {"hidden": (30, 20), "epochs": 2, "batch": 128, "validation": 0.2, "dtype": "float64"}
EXACT = {"hidden": (15, 10), "solver": "exact", "max_iter": 6, "dtype": "float64"}


def start_ranks(size, jobs, folder):
    """Processes that do the jobs together; all are copies of one that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "zeroone.training"])
    meeting = folder / f"meeting-{size}-{time.monotonic_ns()}"
    ranks = [
        context.Process(target=rank.work, args=(k, size, str(meeting), str(folder), jobs))
        for k in range(size)
    ]
    for process in ranks:
        process.start()
    return ranks


def run_ranks(size, jobs, folder):
    """What each rank ends with, by job."""
    ranks = start_ranks(size, jobs, folder)
    for process in ranks:
        process.join(timeout=240)
    assert [process.exitcode for process in ranks] == [0] * size
    return {
        name: [torch.load(folder / f"{name}-{size}-{rank}.pt") for rank in range(size)]
        for name in jobs
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """All jobs by one rank, by two and by four: processes are slow to start."""
    folder = tmp_path_factory.mktemp("ranks")
    shard(load_data("digits"), folder / "even", 5)
    uneven(folder / "uneven")
    jobs = {name: job | {"batches": 50, "batch": 64} for name, job in BATCHES.items()}
    jobs["bits"] = {"hidden": ["30:bits2", "20:bits3"], "settings": {"keep": 0.5, "momentum": 0.5}}
    jobs["bits"] |= {"batches": 50, "batch": 64}
    jobs["digits"] = {"data": "digits", "options": STOCHASTIC}
    jobs["even"] = {"data": str(folder / "even"), "options": STOCHASTIC}
    jobs["uneven"] = {"data": str(folder / "uneven"), "options": STOCHASTIC}
    longer = STOCHASTIC | {"epochs": 12}  # more than 100 batches
    jobs["uneven-longer"] = {"data": str(folder / "uneven"), "options": longer}
    uneven(folder / "lopsided", [0, 2, 1437])
    jobs["lopsided"] = {"data": str(folder / "lopsided"), "options": STOCHASTIC}
    jobs["backbone"] = {
        "data": "digits",
        "options": STOCHASTIC,
        "pretraining": {"backbone": "tiny", "epochs": 2},
        "out": str(folder / "backbone"),
    }
    jobs["exact"] = {"data": "digits", "options": EXACT}
    jobs["exact-uneven"] = {"data": str(folder / "uneven"), "options": EXACT}
    few = {name: jobs[name] for name in BY_FOUR}
    return {size: run_ranks(size, few if size == 4 else jobs, folder) for size in SIZES}


def uneven(folder, cuts=(0, 20, 700, 705, 1400, 1437)):
    digits = load_data("digits")
    pieces = ((digits.X[a:b], digits.y[a:b]) for a, b in pairwise(cuts))
    write_shards(pieces, folder, test=digits.test, image=digits.shape)


def difference(one, other):
    """Relative, of all weights together."""
    names = [name for name in one if name.isdigit()]
    gap = sum(float((one[k] - other[k]).double().square().sum()) for k in names)
    return (gap / sum(float(one[k].double().square().sum()) for k in names)) ** 0.5


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(
            (name, 2)
            for name in (*BATCHES, "digits", "even", "uneven-longer", "lopsided", "backbone")
        ),
        *((name, 4) for name in BY_FOUR if not name.startswith("exact")),
    ],
)
def test_stochastic_solver(name, size, made):
    (alone,), (first, *others) = made[1][name], made[size][name]
    # The backbone under the layers is of float32.
    assert difference(alone, first) < (1e-4 if name == "backbone" else 1e-9)
    for other in others:
        assert difference(first, other) == 0


def test_ranks_normalise_by_their_own_samples(made):
    """Layers with bits: a network by two ranks is not that of one, but both ranks have the same."""
    (alone,), (first, other) = made[1]["bits"], made[2]["bits"]
    assert [len(first[name]) for name in "012"] == [15, 10, 10]
    assert difference(first, other) == 0
    assert difference(alone, first) > 0.01


@pytest.mark.parametrize(("name", "size"), [("exact", 2), ("exact-uneven", 2), ("exact-uneven", 4)])
def test_exact_solver(name, size, made):
    (alone,), (first, *others) = made[1][name], made[size][name]
    assert difference(alone, first) < 1e-9
    for other in others:
        assert difference(first, other) == 0


@pytest.mark.parametrize("size", SIZES[:2])
def test_shards_are_the_same_data(size, made):
    """Wherever the cuts are: the same batches, the same errors, the same scaling."""
    (first, *_) = made[size]["digits"]
    for name in ("even", "uneven", "lopsided"):
        assert difference(first, made[size][name][0]) < 1e-9
        assert torch.allclose(first["errors"], made[size][name][0]["errors"])
    assert difference(made[size]["exact"][0], made[size]["exact-uneven"][0]) < 1e-9


DIFFERENCES = {
    "seed": ({"options": {"seed": 1}}, "seed (1, not 0), train data, validation data"),
    "epochs": ({"options": {"epochs": 3}}, "epochs (3, not 2)"),
    "move": ({"options": {"move": 0.5}}, "move (0.5, not 0.08)"),
    "width": ({"options": {"hidden": (31, 20)}}, "hidden ((31, 20), not (30, 20))"),
    "X": ({"change": "X"}, "in validation data"),
    "y": ({"change": "y"}, " data"),
    "rows": ({"change": "rows"}, "train data, train samples (1148, not 1149)"),
    "classes": ({"change": "classes"}, "classes, test data, test samples (none, not 360)"),
    "test": ({"change": "test"}, "test data"),
    "code": ({"change": "code"}, "in code of zeroone: all"),
    "scores": ({"arguments": {"scores": False}}, "scores (False, not True)"),
    "shards": ({"data": "uneven"}, "shards ([20, 680, 5, 695, 37], not [287,"),
    "nan": ({"change": "nan"}, "rank 2 cannot begin: X contains NaN"),
    "backbone": ({"pretraining": {"epochs": 1}}, "pretraining epochs (1, not 2)"),
}


def test_ranks_that_would_not_train_alike_are_refused(tmp_path):
    """In the same sentence by all ranks, and nothing is written."""
    shard(load_data("digits"), tmp_path / "even", 5)
    uneven(tmp_path / "uneven")
    jobs = {}
    for name, (other, _) in DIFFERENCES.items():
        jobs[name] = {"data": "digits", "options": STOCHASTIC, "on_last": other}
    jobs["shards"] |= {"data": str(tmp_path / "even")}
    jobs["shards"]["on_last"] = {"data": str(tmp_path / "uneven")}
    jobs["backbone"] |= {
        "pretraining": {"backbone": "tiny", "epochs": 2},
        "out": str(tmp_path / "out"),
    }
    found = run_ranks(3, jobs, tmp_path)
    for name, (_, what) in DIFFERENCES.items():
        (sentence,) = {refused.get("refusal", "completed") for refused in found[name]}
        assert what in sentence
        if "cannot begin" not in what:
            assert sentence.startswith("rank 2 differs from rank 0 in ")
            assert sentence.endswith(": all must train alike.")
    assert {path.name for path in tmp_path.glob("out*/**/*.*")} <= {".lock"}


def test_another_number_of_ranks_goes_on(tmp_path):
    """A state is of all ranks: two begin, four go on, one ends."""
    ends = []
    for options in (STOCHASTIC | {"epochs": 20}, EXACT | {"max_iter": 50}):
        job = {
            "data": "digits",
            "options": options,
            "out": str(tmp_path / options.get("solver", "s")),
        }
        whole = job | {"out": job["out"] + "-whole"}
        (whole,) = run_ranks(1, {"whole": whole}, tmp_path)["whole"]
        for size, limit in ((2, 2), (4, 4)):
            interrupted(size, job, limit, tmp_path)
            job["resume"] = True
        ends.append(difference(whole, run_ranks(1, {"end": job}, tmp_path)["end"][0]))
    assert max(ends) < 1e-9


def interrupted(size, job, limit, folder):
    """Stop all ranks once the state is that of iteration ``limit`` or later."""
    state = Path(job["out"]) / "state.safetensors"
    ranks = start_ranks(size, {"x": job}, folder)
    while iterations(state) < limit and all(process.is_alive() for process in ranks):
        time.sleep(0.01)
    for process in ranks:
        process.kill()
        process.join()
    assert state.is_file(), "it ended too soon"


def iterations(state):
    from zeroone.training.checkpoint import STATE_VERSION
    from zeroone.utils.storage import STATE, read_tensors

    try:
        return len(read_tensors(state, STATE, STATE_VERSION)[0]["progress"]["history"]) - 1
    except InputError:
        return -1


def test_alone_nothing_is_sent():
    W = torch.ones(3, 2)
    ALONE.sum_(W)
    assert ALONE.total(1.0, 2.0) == [1.0, 2.0]
    ALONE.largest_(W)
    assert torch.equal(W, torch.ones(3, 2))
    assert ALONE.largest(1.0, 2.0) == [1.0, 2.0]
    assert ALONE.joined(W, torch.arange(3), 3) is W
    assert ALONE.first_word("go") == "go"
    module = torch.nn.Linear(2, 2)
    assert ALONE.wrap(module) is module
    assert ALONE.slice(7) == slice(0, 7)


def under_torchrun(out, *words, restarts=0):
    """The command for two ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--max-restarts", str(restarts), "-m", "zeroone", "train", "--data", "digits"]
    return [*command, "--hidden", "20", "--threads", "1", "--out", str(out), *words]


@pytest.mark.parametrize(
    ("name", "words", "sentence"),
    [
        ("-", ["--batch", "5000"], "batch=5000 is larger than"),
        ("record.json", [], "holds a finished run"),
        ("state.safetensors", ["--resume"], "is truncated or not a safetensors file"),
    ],
    ids=["wrong", "finished", "damaged"],
)
def test_torchrun_refuses_once(name, words, sentence, tmp_path):
    """All ranks refuse it, one says so."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).touch()
    refused = subprocess.run(
        under_torchrun(tmp_path / "run", "--epochs", "2", *words),
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode
    assert refused.stderr.count("zeroone: ") == refused.stderr.count(sentence) == 1


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_torchrun_loses_a_rank(fault, tmp_path):
    """The other one ends in one sentence, and a restart goes on."""
    words = ["--epochs", "100"]
    killed = fault == signal.SIGKILL
    running = subprocess.Popen(
        under_torchrun(tmp_path / "run", *words, restarts=int(killed)),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | ({} if killed else {"ZEROONE_TIMEOUT": "5"}),
    )
    state = tmp_path / "run" / "state.safetensors"
    while iterations(state) < 2 and running.poll() is None:
        time.sleep(0.05)
    lost = rank_of(running.pid, 1)
    os.kill(lost, fault)
    if not killed:
        other = rank_of(running.pid, 0)
        give_up = time.monotonic() + 60
        while is_running(other) and time.monotonic() < give_up:
            time.sleep(0.1)
        assert not is_running(other)
        os.kill(lost, signal.SIGCONT)
    _, said = running.communicate(timeout=120)
    sentences = [line for line in said.splitlines() if "another rank was lost" in line]
    ending = f"); the same command with --resume goes on from {state}."
    assert sentences, said
    assert sentences[0].startswith("zeroone: another rank was lost (")
    assert sentences[0].endswith(ending)
    if not killed:  # without a restart: the same command with --resume
        assert running.returncode
        again = under_torchrun(tmp_path / "run", *words, "--resume")
        subprocess.run(again, check=True, capture_output=True)
    assert running.returncode == (0 if killed else 1), said
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["n_iter"] == 100
    assert len(record["resumed"]) == 1
    assert record["ranks"] == {"count": 2}


def test_what_is_no_matter_of_ranks_is_not_called_so(tmp_path):
    ranks = Team(0, 2)

    def fails(sentence):
        def call():
            raise RuntimeError(sentence)

        return call

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ranks.listen(fails("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(LostRankError) as lost:
        ranks.listen(fails("Connection closed by peer.\nand more"))
    assert str(lost.value) == (
        "another rank was lost (Connection closed by peer); nothing was kept yet: the same "
        "command begins again."
    )
    ranks.state = tmp_path / "state"
    (tmp_path / "state").touch()
    with pytest.raises(LostRankError, match=r"--resume goes on from .*state\.$"):
        ranks.listen(fails("Timed out waiting 5000ms"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_ranks_without_a_gpu_say_so():
    assert not parallel._take_gpu("cpu")
    with pytest.raises(InputError, match="there is no device 'cuda' here"):
        parallel._take_gpu("cuda")


def rank_of(launcher, rank):
    """The process of a rank."""
    for pid in map(int, Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()):
        if f"RANK={rank}\0" in Path(f"/proc/{pid}/environ").read_text().replace("LOCAL_RANK", "_"):
            return pid
    raise AssertionError("there is no such rank")


def is_running(pid):
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False
