"""Several processes that train one network together: torchrun, gloo or nccl, and torch's DDP.

BCD splits over samples exactly: U and V belong to their samples, and all that a W block needs of
them are sums. ``DistributedDataParallel`` adds up the gradients of stochastic BCD; the exact solver
and the scores ask their ``Team`` for sums. Alone, a team has nothing to add.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from zeroone.utils.checks import InputError
from zeroone.utils.device import find_device

NEEDED = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}  # what torchrun tells a process
TIMEOUT = "ZEROONE_TIMEOUT"  # seconds that a rank waits for another one
LONGEST_WAIT = 600.0
Value = TypeVar("Value")


class LostRankError(InputError):
    """Another rank is gone, or does not answer."""


class Team:
    """One process, alone: all sums are its own."""

    rank, size = 0, 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and talks."""
        return self.rank == 0

    def sum_(self, *tensors: Tensor) -> None:
        """Replace each tensor by its sum over the ranks."""

    def largest_(self, tensor: Tensor) -> None:
        """Replace a tensor by the largest over the ranks, entry by entry."""

    def total(self, *numbers: float) -> list[float]:
        """Sums of numbers, in double precision."""
        return list(numbers)

    def largest(self, *numbers: float) -> list[float]:
        """The largest over the ranks of each number."""
        return list(numbers)

    def joined(self, own: Tensor, rows: Tensor, n: int) -> Tensor:  # noqa: ARG002
        """All ``n`` rows of a tensor, of which this rank has some."""
        return own

    def first_word(self, value: Value) -> Value:
        """What the first rank says."""
        return value

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module whose gradients are the mean over the ranks."""
        return module

    def listen(self, call: Callable[[], Value]) -> Value:
        """Call what talks to other ranks; a lost one ends this one in one sentence."""
        return call()

    def describe(self) -> dict[str, Any]:
        """For a record: how many ranks there are."""
        return {"count": self.size}

    def keep_state_in(self, path: Path) -> None:
        """Where the state of the run is kept, for whoever has to say how to go on."""

    def slice(self, n: int) -> slice:
        """The part of n samples that is this rank's, where all ranks have all of them."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)


ALONE = Team()


class Ranks(Team):
    """The processes of ``torch.distributed``'s default group.

    ``halved``: gradients travel as bfloat16.
    """

    def __init__(self, *, halved: bool = False) -> None:
        from torch import distributed

        self._distributed: Any = distributed
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self.halved = halved
        self.state: Path | None = None

    def sum_(self, *tensors: Tensor) -> None:
        """Each in a message of its own."""
        for tensor in tensors:
            self.listen(lambda T=tensor: self._distributed.all_reduce(T))  # type: ignore[misc]

    def largest_(self, tensor: Tensor) -> None:
        """Like a sum."""
        how = self._distributed.ReduceOp.MAX
        self.listen(lambda: self._distributed.all_reduce(tensor, op=how))

    def total(self, *numbers: float) -> list[float]:
        """In one message."""
        tensor = torch.tensor(numbers, dtype=torch.float64)
        self.sum_(tensor)
        return [float(number) for number in tensor]

    def largest(self, *numbers: float) -> list[float]:
        """In one message."""
        tensor = torch.tensor(numbers, dtype=torch.float64)
        self.largest_(tensor)
        return [float(number) for number in tensor]

    def joined(self, own: Tensor, rows: Tensor, n: int) -> Tensor:
        """Each rank adds its rows to zeros."""
        everyone = torch.zeros(n, *own.shape[1:], dtype=own.dtype, device=own.device)
        everyone[rows] = own
        self.sum_(everyone)
        return everyone

    def first_word(self, value: Value) -> Value:
        """Sent to all."""
        box = [value]
        cpu = torch.device("cpu")
        self.listen(lambda: self._distributed.broadcast_object_list(box, device=cpu))
        return box[0]

    def wrap(self, module: nn.Module) -> nn.Module:
        """``DistributedDataParallel``."""
        whole = nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)
        if self.halved:
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            # By another name: DDP refuses that one on the CPU, where gloo adds up bfloat16, too.
            def halve(group: Any, bucket: Any) -> Any:
                return default_hooks.bf16_compress_hook(group, bucket)

            halve.__annotations__.clear()
            whole.register_comm_hook(None, halve)
        return whole

    def listen(self, call: Callable[[], Value]) -> Value:
        """A rank that is killed closes its connections, a frozen one is waited for in vain."""
        try:
            return call()
        except RuntimeError as error:
            if not _is_about_ranks(error):
                raise
            sentence = f"another rank was lost ({_first_line(error)}); {self._hint()}."
            raise LostRankError(sentence) from None

    def _hint(self) -> str:
        if self.state is None or not self.state.is_file():
            return "nothing was kept yet: the same command begins again"
        return f"the same command with --resume goes on from {self.state}"

    def keep_state_in(self, path: Path) -> None:
        """It is named when a rank is lost."""
        self.state = path


@dataclass(frozen=True)
class Share:
    """What a rank has of a batch: which of its ``total`` samples, by their places in it.

    ``places`` None is for all of them.
    """

    total: int
    places: Tensor | None = None

    def of(self, everyone: Tensor) -> Tensor:
        """The rows of this rank, of something that was made for the whole batch."""
        return everyone if self.places is None else everyone[self.places]


def restarts() -> int:
    """How often torchrun has started this process anew."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@contextmanager
def together(*, halved: bool = False, device: str = "cpu") -> Iterator[Team]:
    """The team of the processes that torchrun started; alone where there is just one.

    A rank that is lost ends the others in one sentence. Wrong input is told by the first rank.
    """
    if not os.environ.keys() >= NEEDED or os.environ["WORLD_SIZE"] == "1":
        yield ALONE
        return
    from torch import distributed

    cuda = _take_gpu(device)
    seconds = float(os.environ.get(TIMEOUT, LONGEST_WAIT))
    try:
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=_open_store(),
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            timeout=timedelta(seconds=seconds),
        )
    except (RuntimeError, ValueError) as error:
        raise InputError(f"the ranks did not find each other: {_first_line(error)}.") from None
    ranks = Ranks(halved=halved)
    try:
        yield ranks
        ranks.listen(distributed.barrier)
    except LostRankError as error:
        # The group's threads still wait for the lost rank: an ordinary exit would wait with them.
        print(f"zeroone: {error}", file=sys.stderr, flush=True)
        os._exit(2)
    except InputError:
        if not ranks.is_first:
            raise SystemExit(2) from None  # the first rank has said it
        raise
    else:
        distributed.destroy_process_group()


def _open_store() -> Any:
    """Where the ranks meet. After a restart, what was said before does not count."""
    from torch import distributed

    made: Any = distributed  # its stores are not declared
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    by_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    keep = os.environ["RANK"] == "0" and not by_launcher  # where nobody else keeps the store
    wait = timedelta(seconds=LONGEST_WAIT)
    store = made.TCPStore(host, port, is_master=keep, timeout=wait)
    return made.PrefixStore(f"zeroone-{restarts()}", store)


def _take_gpu(device: str) -> bool:
    """On a machine with several, each rank takes the GPU of its local number. Whether it is one."""
    if find_device(device).type != "cuda":
        return False
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device != "cuda":
        raise InputError(f"several ranks take a GPU each: device='cuda', not {device!r}.")
    if local >= torch.cuda.device_count():
        raise InputError(f"there is no GPU for local rank {local}: start fewer on this machine.")
    torch.cuda.set_device(local)
    return True


def _is_about_ranks(error: RuntimeError) -> bool:
    """Whether an error is one of talking to other ranks, not of a computation here."""
    from torch import distributed

    if isinstance(error, distributed.DistError):
        return True
    said = str(error).lower()
    return any(word in said for word in ("gloo", "nccl", "connection", "timed out", "timeout"))


def _first_line(error: BaseException) -> str:
    """What it says, without the file of torch's own that says it."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[[^]]*\]\s*", "", line).split(". ")[0].rstrip(".")
