"""Runs that are killed, stopped and starved of disk space, and resumed until they end.

    python benchmarks/torture.py --runs 200 --json results/torture.json

Every run is interrupted up to three times, at random moments, and then resumed until it ends: by
SIGKILL, SIGTERM or SIGINT, by SIGSTOP with a later SIGCONT, or by a limit on the size of files, as
on a full disk. Counts the runs whose model, byte by byte, and record, without times and dates, are
those of an uninterrupted run. A traceback or a file that is left over counts as a failure as well.

What happens to run k depends on ``--seed`` and k alone. With ``--json``, the same command continues
after the last run on record. Children are forked from this process, which never trains itself;
two ranks are started by torchrun.
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch._dynamo as also_preloaded  # noqa: F401, Adam imports it

from benchmarks.measure import begin, finish, parser
from zeroone import TrainSettings
from zeroone.baselines.settings import BaselineSettings
from zeroone.cli import main as zeroone
from zeroone.commands import train as preloaded  # noqa: F401, here once, not in every child
from zeroone.data.load import load_data
from zeroone.training.baselines import train_baseline
from zeroone.training.checkpoint import FILE as STATE
from zeroone.training.checkpoint import MODEL as MODEL_FILE
from zeroone.training.checkpoint import RECORD
from zeroone.utils.records import write_record
from zeroone.utils.storage import MODEL, write_tensors

SMALL = ["--batch", "20", "--backbone", "small", "--pretraining-epochs", "20"]
EXACT = ["--hidden", "40", "--max-iter", "250", "--tol", "0"]
DIGITS = ["--data", "digits", "--validation", "0.1", "--batch", "100"]
KINDS: dict[str, list[str]] = {
    "mlp": [*DIGITS, "--hidden", "60,40", "--epochs", "80"],
    "keep": [*DIGITS, "--hidden", "60,40", "--epochs", "60", "--keep", "0.5", "--patience", "50"],
    "convolution": [*DIGITS, "--hidden", "conv3x3:8:max2,30", "--epochs", "30"],
    "exact": ["--data", "digits", "--solver", "exact", *EXACT],
    "pretraining": ["--data", "bars.npz", "--hidden", "30", "--epochs", "150", *SMALL],
    "baseline": [],
    "ranks": [*DIGITS, "--hidden", "60,40", "--epochs", "250"],
}
ORDER = [kind for kind in KINDS if kind != "ranks"] * 2 + ["ranks"]  # which begins slowly
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
HOW = [*(s.name for s in SIGNALS), "stop", "disk"]
TRIES = 10  # of resuming a run without an interruption
LONGEST = 120.0  # seconds of one attempt
KEPT = {
    ".lock",
    ".features",
    MODEL_FILE,
    RECORD,
    "initial",
    "train.npy",
    "test.npy",
}


class Attempt:
    """A process, or torchrun and its ranks, that trains in a folder."""

    def __init__(self, kind: str, out: Path, *words: str, most: int | None = None) -> None:
        """Start it; no file that it writes may have more than ``most`` bytes."""
        self.kind, self.log, self.code = kind, out.with_suffix(".log"), None
        if kind == "ranks":
            command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
            command += ["--no-python", sys.executable, "-m", "zeroone", *_train(kind, out), *words]
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    preexec_fn=lambda: _limit(most),  # noqa: PLW1509, there are no threads here
                )
            self.pid = self.process.pid
            return
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            self._be_child(out, words, most)

    def _be_child(self, out: Path, words: tuple[str, ...], most: int | None) -> None:
        code = 130
        with suppress(KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            _limit(most)
            code = _code_of(lambda: _work(self.kind, out, words))
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

    def wait(self, seconds: float) -> bool:
        """Wait until it ends, at most so long; return whether it has ended."""
        limit = time.monotonic() + seconds
        while self.code is None:
            if self.kind == "ranks":
                self.code = self.process.poll()
            elif os.waitpid(self.pid, os.WNOHANG) != (0, 0):
                self.code = 0
            if self.code is None:
                if time.monotonic() >= limit:
                    return False
                time.sleep(0.005)
        return True

    def pids(self) -> list[int]:
        """Return its processes, the one that was started first."""
        children: list[str] = []
        if self.kind == "ranks":
            with suppress(OSError):
                path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
                children = path.read_text().split()
        return [self.pid, *map(int, children)]

    def send(self, how: signal.Signals, rng: random.Random) -> None:
        """Send a signal: SIGKILL to all processes, others to one of them."""
        pids = self.pids()
        for pid in pids if how == signal.SIGKILL else [rng.choice(pids)]:
            with suppress(ProcessLookupError):
                os.kill(pid, how)


def _limit(most: int | None) -> None:
    if most is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def _code_of(call: Callable[[], None]) -> int:
    try:
        call()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _train(kind: str, out: Path) -> list[str]:
    return ["train", *KINDS[kind], "--threads", "1", "--quiet", "--out", str(out)]


def _work(kind: str, out: Path, words: tuple[str, ...]) -> None:
    """Train in this process, as the command does, or as a run matrix trains a baseline."""
    if kind != "baseline":
        sys.argv = ["zeroone", *_train(kind, out), *words]
        zeroone()
        return
    sys.argv = ["zeroone", "baseline"]
    digits, options = load_data("digits"), {"hidden": (60, 40), "epochs": 150, "batch": 100}
    settings = TrainSettings.from_options(**options, validation=0.1)
    try:
        model, record = train_baseline(
            digits.X,
            digits.y,
            BaselineSettings("relu", batch_norm=True),
            settings,
            out=out,
            resume="--resume" in words,
        )
        write_tensors(out / MODEL_FILE, MODEL, {"version": 1}, model.state_dict())
        write_record(out / RECORD, record)
    except ValueError as error:  # an InputError, as the command shows it
        sys.exit(f"zeroone: {error}")
    (out / STATE).unlink()


def is_begun(kind: str, out: Path) -> bool:
    """Tell whether there is something to resume."""
    stages = [out, out / "initial"] if kind == "pretraining" else [out]
    return any((stage / STATE).exists() for stage in stages) or (
        kind == "pretraining" and (out / "initial" / RECORD).exists()
    )


def is_done(out: Path) -> bool:
    return (out / RECORD).exists() and not (out / STATE).exists()


def attempt(kind: str, out: Path, most: int | None = None) -> Attempt:
    return Attempt(kind, out, *(["--resume"] if is_begun(kind, out) else []), most=most)


@dataclass
class Whole:
    """An uninterrupted run of a kind: how long it takes, its largest file, and how it ends."""

    seconds: float
    largest: int
    ending: dict[str, Any]


def interrupt(kind: str, out: Path, whole: Whole, rng: random.Random) -> str | None:
    """Start or resume a run and interrupt it at a random moment; say how, None if it was late."""
    how, moment = rng.choice(HOW), rng.uniform(0, 0.9 * whole.seconds)
    most = int(rng.uniform(0, 0.95) * whole.largest) if how == "disk" else None
    started, running = time.monotonic(), attempt(kind, out, most)
    if how == "disk":
        running.wait(LONGEST)
        return None if is_done(out) else how
    if running.wait(moment):
        if not is_begun(kind, out):
            whole.seconds = min(whole.seconds, time.monotonic() - started)
        return None
    if how == "stop":
        for sign in (signal.SIGSTOP, signal.SIGCONT):
            for pid in running.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, sign)
            time.sleep(rng.uniform(0, 0.3))
    else:
        running.send(signal.Signals[how], rng)
    if not running.wait(LONGEST):
        running.send(signal.SIGKILL, rng)
        running.wait(LONGEST)
        how += ", and hung"
    return how


def torture(kind: str, out: Path, whole: Whole, rng: random.Random) -> dict[str, Any]:
    """Interrupt a run, then resume it until it ends; tell what happened.

    A run that ended before it was interrupted begins again.
    """
    happened: list[str] = []
    for _ in range(rng.randint(1, 3)):
        for _ in range(TRIES if not happened else 1):
            if is_done(out) and not happened:
                shutil.rmtree(out)
            if not is_done(out) and (how := interrupt(kind, out, whole, rng)):
                happened.append(how)
                break
    tries = 0
    while not is_done(out) and tries < TRIES:
        tries += 1
        running = attempt(kind, out)
        if not running.wait(LONGEST):
            running.send(signal.SIGKILL, rng)
            running.wait(LONGEST)
    return {"happened": happened, "tries": tries}


def resumptions(out: Path) -> int:
    """Count how often a run went on from a state, in both stages."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in out.rglob(RECORD)]
    return sum(len(record["resumed"]) for record in records)


def ending(out: Path) -> dict[str, Any]:
    """Return what must be the same: models, and records without what depends on time."""
    found: dict[str, Any] = {}
    for stage in ("", "initial/"):
        if (out / stage / RECORD).exists():
            text = (out / stage / RECORD).read_text(encoding="utf-8")
            found[f"{stage}record"] = timeless(json.loads(text))
        if (out / stage / MODEL_FILE).exists():
            found[f"{stage}model"] = (out / stage / MODEL_FILE).read_bytes()
    return found


def timeless(tree: Any) -> Any:
    if isinstance(tree, dict):
        timed = ("date", "seconds", "resumed", "commit", "code")
        return {name: timeless(value) for name, value in tree.items() if name not in timed}
    return [timeless(item) for item in tree] if isinstance(tree, list) else tree


def faults(out: Path, whole: dict[str, Any]) -> list[str]:
    """Compare a run with the uninterrupted one; list what is wrong with it."""
    wrong = [] if is_done(out) else ["did not end"]
    made = ending(out)
    wrong += [f"other {name}" for name in whole if made.get(name) != whole[name]]
    said = out.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
    if out.name.startswith("ranks"):  # torchrun prints a traceback when it is stopped
        said = "".join(line for line in said.splitlines() if line.startswith("zeroone: "))
    if "Traceback" in said:
        wrong.append(f"traceback: {said.strip().splitlines()[-1]}")
    left = {path.name for path in out.rglob("*")} - KEPT
    return wrong + [f"left over: {name}" for name in sorted(left)]


def write_bars(path: Path) -> None:
    """Write small images, the thickness of whose bars tells the class."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    images = rng.integers(0, 60, (len(y), 18, 18))
    for image, kind in zip(images, y, strict=True):
        top = rng.integers(0, 12)
        image[top : top + 2 * kind + 1] += 150
    np.savez(path, X=images.astype(np.uint8), y=y)


def references(kinds: list[str]) -> dict[str, Whole]:
    """Train each kind without interruption."""
    made = {}
    for kind in kinds:
        out, started, largest = Path(f"{kind}-whole").absolute(), time.monotonic(), 0
        running = attempt(kind, out)
        while not running.wait(0.02) and time.monotonic() < started + LONGEST:
            with suppress(OSError):  # files and folders vanish meanwhile
                for state in out.rglob(STATE):
                    largest = max(largest, state.stat().st_size)
        if not is_done(out):
            sys.exit(f"{kind} does not even train:\n{out.with_suffix('.log').read_text()}")
        made[kind] = Whole(time.monotonic() - started, largest, ending(out))
        print(f"{kind} takes {made[kind].seconds:.1f} s without interruption", flush=True)
    return made


def plan(number: int, seed: int) -> tuple[str, random.Random]:
    """Return the kind of a run and its random numbers."""
    return ORDER[number % len(ORDER)], random.Random(f"{seed}-{number}")


def earlier(record: dict[str, Any], path: Path | None) -> list[dict[str, Any]]:
    """Return the runs on record that the same code made with the same seed."""
    if path is None or not path.exists():
        return []
    before = json.loads(path.read_text(encoding="utf-8"))
    same = before["code"] == record["code"]
    same = same and before["settings"]["seed"] == record["settings"]["seed"]
    return list(before["runs"]) if same else []


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=None, threads=None)
    arguments.add_argument("--runs", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "ZEROONE_TIMEOUT": "20"}
    load_data("digits")  # imports scikit-learn, for all children
    record = begin("torture", options)
    path = options.json and options.json.absolute()
    record["runs"] = earlier(record, path)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_bars(Path("bars.npz"))
        numbers = range(len(record["runs"]), options.runs)
        wanted = {plan(number, options.seed)[0] for number in numbers}
        whole = references([kind for kind in KINDS if kind in wanted])
        for number in numbers:
            kind, rng = plan(number, options.seed)
            out = Path(f"{kind}-{number}").absolute()
            told = {"kind": kind} | torture(kind, out, whole[kind], rng)
            told |= {"resumed": resumptions(out), "faults": faults(out, whole[kind].ending)}
            record["runs"].append(told)
            verdict = "; ".join(told["faults"]) or "identical"
            what = ", ".join(told["happened"])
            print(f"{number + 1}/{options.runs} {kind}: {what}: {verdict}", flush=True)
            shutil.rmtree(out, ignore_errors=True)
            out.with_suffix(".log").unlink(missing_ok=True)
            finish(summed_up(record), path, quiet=True)
    print(json.dumps(summed_up(record)["result"], indent=1))
    finish(record, path)
    sys.exit(any(run["faults"] for run in record["runs"]))


def summed_up(record: dict[str, Any]) -> dict[str, Any]:
    """Add the counts of all runs and of each kind."""
    runs = record["runs"]
    good = [run for run in runs if not run["faults"]]
    of, identical = Counter(r["kind"] for r in runs), Counter(r["kind"] for r in good)
    record["result"] = {
        "runs": len(runs),
        "identical": len(good),
        "resumptions": sum(run["resumed"] for run in runs),
        "interruptions": dict(Counter(how for run in runs for how in run["happened"])),
        "by_kind": {kind: {"runs": of[kind], "identical": identical[kind]} for kind in sorted(of)},
    }
    return record


if __name__ == "__main__":
    main()
