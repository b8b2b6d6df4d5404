"""Signs of life: a rank that is killed, frozen or cut off ends the others in one sentence.

A sum over ranks waits for all of them, and must wait long, since a sweep over many samples may take
minutes. So a thread of each rank writes a number that grows into a store that all can reach, and
looks at that of its neighbour: a process that is frozen has a thread that is frozen.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from zeroone.checks import InputError

BEAT = 1.0  # seconds
PATIENCE = 15.0  # without a sign of life
QUICK = 4.0  # the same, once it is known that something is wrong
GRACE = 6.0  # that the main thread has to end by itself
FOUND = "lost"
UNREACHABLE = {"rank": 0, "why": "(or the launcher), where ranks meet, cannot be reached"}


class LostRankError(InputError):
    """Another rank is gone; the message says which, and how to go on."""


class Watch:
    """The thread of one rank. ``state``: where the state of the run is kept."""

    def __init__(self, rank: int, size: int, open_store: Callable[[], Any]) -> None:
        self.rank, self.size = rank, size
        self.state: Path | None = None
        self.lost: LostRankError | None = None  # once it is known
        self._open_store = open_store
        self._ended = threading.Event()
        self._reached = time.monotonic()  # when the store last answered
        self._before: Any = None

    def start(self) -> None:
        """From now on."""
        self.store = self._open_store()
        self._beat(0)
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._on_term)
        for work in (self._run, self._guard):
            threading.Thread(target=work, name="watch", daemon=True).start()

    def stop(self) -> None:
        """The work is done, or has failed."""
        self._ended.set()
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def tell(self, error: BaseException) -> bool:
        """Let the others know why this rank fails, before it is gone.

        Whether that is news: all ranks may refuse the same input.
        """
        why = _why(error)
        with suppress(RuntimeError):
            limit = time.monotonic() + (2 * BEAT if self.rank else 0)
            while time.monotonic() < limit and not self._found():  # the first rank has the word
                time.sleep(BEAT / 10)
            if not self._announce(self.rank, why):
                return self._found() != {"rank": 0, "why": why}
        return True

    @property
    def has_state(self) -> bool:
        """Whether there is something to go on from."""
        return self.state is not None and self.state.is_file()

    def stopped(self, error: BaseException) -> LostRankError:
        """What this rank itself says when it fails."""
        return self._error({"rank": self.rank, "why": _why(error)})

    def find_lost(self, otherwise: str) -> LostRankError:
        """Which rank is gone, now that a sum has failed; ``otherwise``: what to say if none is."""
        limit = time.monotonic() + 2 * QUICK
        try:
            before = self._beats()
            while time.monotonic() < limit:
                time.sleep(BEAT)
                if found := self._found():
                    return self._error(found)
                if time.monotonic() > limit - QUICK:
                    now = self._beats()
                    silent = [r for r in range(self.size) if now[r] == before[r] and r != self.rank]
                    if silent:
                        self._announce(silent[0], "no longer answers")
        except RuntimeError:
            return self._error(UNREACHABLE)
        return self._error({"rank": -1, "why": otherwise})

    def _run(self) -> None:
        neighbour, last, since, beats = (self.rank + 1) % self.size, "", time.monotonic(), 1
        while not self._ended.wait(BEAT):
            try:
                self._beat(beats)
                found, seen = self._found(), self._beats([neighbour])[0]
            except RuntimeError:
                continue
            self._reached, beats = time.monotonic(), beats + 1
            if seen != last:
                last, since = seen, time.monotonic()
            elif time.monotonic() - since > PATIENCE and not found:
                self._announce(neighbour, f"gave no sign of life for {PATIENCE:.0f} s")
                found = self._found()
            if found:
                self._end(found)

    def _guard(self) -> None:
        """Where the network is cut, a question to the store is never answered."""
        while not self._ended.wait(BEAT):
            if time.monotonic() - self._reached > PATIENCE:
                self._end(UNREACHABLE)

    def _end(self, found: dict[str, Any]) -> None:
        """The main thread may be waiting for a sum that will never come."""
        self.lost = self._error(found)
        if not self._ended.wait(GRACE):
            _exit_with(self.lost)

    def _on_term(self, *_: Any) -> None:
        """When one rank is gone torchrun ends the others: say which, while there is time."""
        _exit_with(self.find_lost("the process was asked to stop"))

    def _beat(self, number: int) -> None:
        self.store.set(f"beat-{self.rank}", str(number))

    def _beats(self, ranks: list[int] | None = None) -> list[str]:
        names = [f"beat-{rank}" for rank in (range(self.size) if ranks is None else ranks)]
        return [self.store.get(name).decode() if self.store.check([name]) else "" for name in names]

    def _announce(self, rank: int, why: str) -> bool:
        """The first word counts. Whether it is this one."""
        said = json.dumps({"rank": rank, "why": why})
        return bool(self.store.compare_set(FOUND, "", said).decode() == said)

    def _found(self) -> dict[str, Any] | None:
        if not self.store.check([FOUND]):
            return None
        found: dict[str, Any] = json.loads(self.store.get(FOUND))
        return found

    def _error(self, found: dict[str, Any]) -> LostRankError:
        who = f"rank {found['rank']} {found['why']}" if found["rank"] >= 0 else found["why"]
        return LostRankError(f"{who}; {self._hint()}.")

    def _hint(self) -> str:
        if not self.has_state:
            return "nothing was kept yet: the same command begins again"
        return f"the same command with --resume goes on from {self.state}"


def _why(error: BaseException) -> str:
    return f"stopped: {' '.join(str(error).split()).rstrip('.') or type(error).__name__}"


def _exit_with(error: LostRankError) -> None:
    """From a thread, or with a sum that never ends: nothing else would stop the process."""
    print(f"zeroone: {error}", file=sys.stderr, flush=True)
    os._exit(2)
