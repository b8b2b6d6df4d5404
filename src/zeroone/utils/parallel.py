"""Several processes that train one network: torchrun, gloo or nccl, and torch's DDP.

BCD splits over samples exactly: U and V belong to their samples, and a W block needs only sums over
them. ``DistributedDataParallel`` adds up the gradients of stochastic BCD; the exact solver and the
scores ask their ``Team`` for sums. This module alone knows ``torch.distributed``.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.rendezvous import rendezvous

from zeroone.utils.checks import InputError, NotEnoughMemoryError, first_line
from zeroone.utils.device import find_device

TIMEOUT = "ZEROONE_TIMEOUT"  # seconds that a rank waits for another one
LONGEST_WAIT = 600.0
REFUSAL = "refusal"  # the name of a fact: why a rank cannot begin
LOST = ("gloo", "nccl", "connection", "timed out", "timeout")  # words of errors about ranks
SHORT = 30  # letters of a value that a sentence shows; digests are longer
Value = TypeVar("Value")


class LostRankError(InputError):
    """Another rank is gone or does not answer."""


class Team:
    """The processes of ``torch.distributed``'s default group, or one process alone.

    Alone, what the process has is what all ranks have.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self.is_first = rank == 0  # and writes files and messages
        self.state: Path | None = None  # the file of the run's state, for messages

    def sum_(self, *tensors: Tensor) -> None:
        """Replace each tensor by its sum over the ranks."""
        self._reduce("SUM", *tensors)

    def largest_(self, *tensors: Tensor) -> None:
        """Replace each tensor by its largest entries over the ranks."""
        self._reduce("MAX", *tensors)

    def total(self, *numbers: float) -> list[float]:
        """Sum numbers over the ranks, in double precision."""
        return self._of_all("SUM", numbers)

    def largest(self, *numbers: float) -> list[float]:
        """Find the largest of each number over the ranks."""
        return self._of_all("MAX", numbers)

    def _reduce(self, how: str, *tensors: Tensor) -> None:
        for tensor in tensors if self.size > 1 else ():
            op = getattr(distributed.ReduceOp, how)
            self.listen(partial(distributed.all_reduce, tensor, op=op))

    def _of_all(self, how: str, numbers: tuple[float, ...]) -> list[float]:
        tensor = torch.tensor(numbers, dtype=torch.float64)
        self._reduce(how, tensor)
        return [float(number) for number in tensor]

    def joined(self, own: Tensor, rows: Tensor, n: int) -> Tensor:
        """Join the rows of all ranks to ``n`` rows; ``rows`` are the numbers of this rank's."""
        if self.size == 1:
            return own
        everyone = torch.zeros(n, *own.shape[1:], dtype=own.dtype, device=own.device)
        everyone[rows] = own
        self.sum_(everyone)
        return everyone

    def first_word(self, value: Value) -> Value:
        """Return the first rank's value on all ranks."""
        box = [value]
        if self.size > 1:
            cpu = torch.device("cpu")
            self.listen(partial(distributed.broadcast_object_list, box, device=cpu))
        return box[0]

    @contextmanager
    def agree(self) -> Iterator[dict[str, Any]]:
        """Collect facts in a dictionary; all ranks raise an error if theirs differ.

        So they do if one of them raises an ``InputError`` in the block.
        """
        facts: dict[str, Any] = {}
        try:
            yield facts
        except InputError as error:
            if self.size == 1:
                raise
            facts = {REFUSAL: str(error)}
        if self.size > 1:
            told = {name: str(value) for name, value in facts.items()}
            everyone: list[Any] = [None] * self.size
            self.listen(partial(distributed.all_gather_object, everyone, told))
            _refuse_differences(everyone)

    def wrap(self, module: nn.Module) -> nn.Module:
        """Make the module's gradients the mean over the ranks."""
        if self.size == 1:
            return module
        return nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)

    def listen(self, call: Callable[[], Value]) -> Value:
        """Call a function that talks to other ranks; raise ``LostRankError`` if one is gone.

        A killed rank closes its connections, a frozen one times out.
        """
        try:
            return call()
        except RuntimeError as error:
            said = str(error).lower()
            lost = isinstance(error, distributed.DistError) or any(word in said for word in LOST)
            if self.size == 1 or not lost:  # an error in a computation here
                raise
            hint = "nothing was kept yet: the same command begins again"
            if self.state is not None and self.state.is_file():
                hint = f"the same command with --resume goes on from {self.state}"
            sentence = f"another rank was lost ({first_line(error)}); {hint}."
            raise LostRankError(sentence) from None

    def slice(self, n: int) -> slice:
        """Cut this rank's part from n samples that all ranks have."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)


ALONE = Team()


@dataclass(frozen=True)
class Share:
    """A rank's samples of a batch."""

    total: int  # samples of the whole batch
    places: Tensor | None = None  # of this rank's samples in the batch; None for all

    def of(self, everyone: Tensor) -> Tensor:
        """Pick this rank's rows of a tensor that was made for the whole batch."""
        return everyone if self.places is None else everyone[self.places]


def restarts() -> int:
    """Count how often torchrun has started this process again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@contextmanager
def together(device: str = "cpu") -> Iterator[Team]:
    """Join the processes that torchrun started; a process without torchrun is alone.

    When a rank is lost, the others print one sentence and exit with code 2. When the input is
    wrong, only the first rank says so; when memory is short, the rank that has too little.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":  # torchrun sets it
        yield ALONE
        return
    backend = "cpu:gloo,cuda:nccl" if _take_gpu(device) else "gloo"
    wait = timedelta(seconds=float(os.environ.get(TIMEOUT, LONGEST_WAIT)))
    try:
        store, rank, size = next(rendezvous("env://", timeout=wait))
        # torchrun keeps its store over restarts, with the addresses of ranks that are gone.
        own = distributed.PrefixStore(f"restart-{restarts()}", store)  # type: ignore[attr-defined]
        distributed.init_process_group(backend, store=own, rank=rank, world_size=size, timeout=wait)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"the ranks did not find each other: {first_line(error)}.") from None
    team = Team(distributed.get_rank(), distributed.get_world_size())
    try:
        yield team
        team.listen(distributed.barrier)
    except LostRankError as error:
        # The group's threads still wait for the lost rank: an ordinary exit would wait with them.
        print(f"zeroone: {error}", file=sys.stderr, flush=True)
        os._exit(2)
    except InputError as error:
        if not team.is_first and not isinstance(error, NotEnoughMemoryError):
            raise SystemExit(2) from None
        raise
    else:
        distributed.destroy_process_group()


def _refuse_differences(everyone: list[dict[str, str]]) -> None:
    """Name the first rank that cannot begin, or differs from rank 0, and what differs."""
    first, refusals = everyone[0], [facts.get(REFUSAL) for facts in everyone]
    for rank, sentence in enumerate(refusals):
        if sentence is not None:
            shared = refusals == [sentence] * len(everyone)
            raise InputError(sentence if shared else f"rank {rank} cannot begin: {sentence}")
    for rank, facts in enumerate(everyone):
        differing = []
        for name in sorted(first.keys() | facts.keys()):
            ours, theirs = first.get(name, "none"), facts.get(name, "none")
            if ours != theirs:
                short = len(ours + theirs) <= 2 * SHORT
                differing.append(f"{name} ({theirs}, not {ours})" if short else name)
        if differing:
            what = ", ".join(differing)
            raise InputError(f"rank {rank} differs from rank 0 in {what}: all must train alike.")


def _take_gpu(device: str) -> bool:
    """Take the GPU of this rank's local number; return whether the device is a GPU."""
    if find_device(device).type != "cuda":
        return False
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device != "cuda":
        raise InputError(f"several ranks take a GPU each: device='cuda', not {device!r}.")
    if local >= torch.cuda.device_count():
        raise InputError(f"there is no GPU for local rank {local}: start fewer on this machine.")
    torch.cuda.set_device(local)
    return True
