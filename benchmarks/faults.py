"""Lost ranks: what the survivors print, how soon, and whether the run continues.

    python benchmarks/faults.py --json results/faults.json

Trains on digits under torchrun. A rank is killed, frozen, or killed with a restart allowed; the
disk is full at a checkpoint; the network between two ranks is cut. The last two need root (a small
tmpfs, two network namespaces) and are skipped, with a message, without it.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.measure import begin, finish, parser

TRAIN = ["-m", "zeroone", "train", "--threads", "1", "--quiet", "--data", "digits"]
TRAIN += ["--hidden", "60,40", "--epochs", "3000"]
LONGEST = 60  # seconds that survivors may take
STATE = "state.safetensors"
PEER = ("peer", "name", "zb", "netns")


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def launch(out: Path, *options: str, ranks: int = 3) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    return start([*command, *options, *TRAIN, "--out", str(out)])


def start(command: list[str], **environment: str) -> "subprocess.Popen[str]":
    everything = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=everything
    )


def until_kept(out: Path) -> None:
    """Wait until a run has written its state and trained a little more."""
    limit = time.monotonic() + 120
    while not (out / STATE).exists():
        if time.monotonic() > limit:
            sys.exit(f"no state was kept in {out}")
        time.sleep(0.1)
    time.sleep(3)


def rank_of(launcher: int, rank: int) -> int:
    for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if f"\0RANK={rank}\0" in Path(f"/proc/{pid}/environ").read_text():
            return int(pid)
    sys.exit(f"there is no rank {rank}")


def end(process: "subprocess.Popen[str]", since: float) -> dict[str, Any]:
    """Wait for a process; return when it ended and what it printed."""
    try:
        _, said = process.communicate(timeout=3 * LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        return {"ended": False}
    named = re.sub(rf"{tempfile.gettempdir()}/\w+", "FOLDER", said)  # which differs
    sentences = sorted(set(re.findall(r"^zeroone: .*", named, re.MULTILINE)))
    seconds = time.monotonic() - since
    return {"ended": True, "exit": process.returncode, "seconds": seconds, "said": sentences}


def epochs_kept(out: Path) -> int:
    from zeroone.training.checkpoint import STATE_VERSION
    from zeroone.utils.storage import STATE as KIND
    from zeroone.utils.storage import read_tensors

    return len(read_tensors(out / STATE, KIND, STATE_VERSION)[0]["progress"]["history"]) - 1


def lose(folder: Path, how: signal.Signals) -> dict[str, Any]:
    """Kill or freeze a rank; the survivors end with a sentence."""
    out = folder / how.name
    launched = launch(out)
    until_kept(out)
    survivor, since = rank_of(launched.pid, 0), time.monotonic()
    os.kill(rank_of(launched.pid, 1), how)
    while is_running(survivor):
        time.sleep(0.1)
    stopped = time.monotonic() - since
    return {"survivors": stopped, "epochs_kept": epochs_kept(out)} | end(launched, since)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def restart(folder: Path) -> dict[str, Any]:
    """Kill a rank and let torchrun restart all of them: the run continues by itself."""
    out = folder / "restart"
    launched = launch(out, "--max-restarts", "1", ranks=2)
    until_kept(out)
    kept = epochs_kept(out)
    os.kill(rank_of(launched.pid, 1), signal.SIGKILL)
    since = time.monotonic()
    while epochs_kept(out) <= kept + 20 and launched.poll() is None:
        time.sleep(0.5)
    seconds, after = time.monotonic() - since, epochs_kept(out)
    launched.terminate()
    launched.communicate(timeout=LONGEST)
    return {"epochs_kept": kept, "epochs_later": after, "seconds": seconds}


def full_disk(folder: Path) -> dict[str, Any]:
    """Fill the disk before a checkpoint; the previous one stays whole."""
    disk = folder / "disk"
    disk.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk))
    try:
        launched = launch(disk / "run")
        until_kept(disk / "run")
        with (disk / "fill").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1024))
        found = end(launched, time.monotonic())
        return found | {"epochs_kept": epochs_kept(disk / "run")}
    finally:
        run("umount", str(disk))


def cut_cable(folder: Path) -> dict[str, Any]:
    """Join two ranks in two network namespaces by a virtual cable, and cut it."""
    names, out = ("zeroone-a", "zeroone-b"), folder / "cable"
    try:
        for name in names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "link", "add", "za", "netns", names[0], "type", "veth", *PEER, names[1])
        for k, (name, end_of) in enumerate(zip(names, ("za", "zb"), strict=True), start=1):
            run("ip", "-n", name, "addr", "add", f"10.9.0.{k}/24", "dev", end_of)
            run("ip", "-n", name, "link", "set", end_of, "up")
        ranks = [in_namespace(name, rank, out) for rank, name in enumerate(names)]
        until_kept(out)
        since = time.monotonic()
        run("ip", "-n", names[0], "link", "set", "za", "down")
        return {f"rank {k}": end(rank, since) for k, rank in enumerate(ranks)}
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def in_namespace(name: str, rank: int, out: Path) -> "subprocess.Popen[str]":
    command = ["ip", "netns", "exec", name, sys.executable, *TRAIN, "--out", str(out)]
    address = {"MASTER_ADDR": "10.9.0.1", "MASTER_PORT": "29555", "WORLD_SIZE": "2"}
    own = {"RANK": str(rank), "LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": f"z{name[-1]}"}
    return start(command, **address, **own)


FAULTS: dict[str, tuple[bool, Callable[[Path], dict[str, Any]]]] = {
    "killed": (False, lambda folder: lose(folder, signal.SIGKILL)),
    "frozen": (False, lambda folder: lose(folder, signal.SIGSTOP)),
    "restarted": (False, restart),
    "disk full": (True, full_disk),
    "cable cut": (True, cut_cable),
}


def main() -> None:
    options = parser(__doc__.splitlines()[0], repeats=1, threads=1).parse_args()
    record = begin("faults", options) | {"faults": {}}
    may = os.geteuid() == 0 and shutil.which("ip") is not None
    for name, (needs_root, happen) in FAULTS.items():
        if needs_root and not may:
            print(f"{name}: skipped, it needs root and ip")
            continue
        with tempfile.TemporaryDirectory() as folder:
            record["faults"][name] = happen(Path(folder))
        print(f"{name}: {json.dumps(record['faults'][name], indent=1)}", flush=True)
    finish(record, options.json)


if __name__ == "__main__":
    main()
