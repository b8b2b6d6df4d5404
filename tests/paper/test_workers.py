"""Processes for runs: no more than the cores carry, none that outlives its parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from paper.matrix.workers import (
    Progress,
    _starting,
    fitting_jobs,
    run_tasks,
    usable_cores,
)


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


def wait_until(condition, seconds=120):
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
from paper.matrix.workers import _child
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
        "    from test_workers import report_for_ever, run_tasks\n"
        f"    for _ in run_tasks(report_for_ever, [{str(task)!r}], jobs=1, threads=1): pass\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    parent = subprocess.Popen([sys.executable, str(script)])
    wait_until(lambda: task.exists() and task.read_text())
    parent.kill()
    parent.wait()
    wait_until(lambda: not alive(int(task.read_text())))


def test_ctrl_c_while_a_process_starts_is_not_lost():
    heard = []

    def interrupted_start():
        with _starting(threads=1):
            # To this thread: another one could take it, and pass it on at any later time.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            heard.append("not yet")

    with pytest.raises(KeyboardInterrupt):
        interrupted_start()
    assert heard == ["not yet"]


def test_a_script_without_its_guard_is_told(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from paper.matrix.command import run_matrix\n"
        "from paper.matrix.spec import Spec\n"
        "run_matrix(Spec(('digits',), ('f3nn:4',), ('bcd',), train={'epochs': 1}), Path('out'))\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "under if __name__ == '__main__':" in done.stderr.splitlines()[-1]
    assert not list((tmp_path / "out").rglob("*.jsonl"))


def test_processes_end_with_their_parent(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\n"
        "from pathlib import Path\n"
        "from paper.matrix.workers import run_tasks\n"
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
