"""Several processes that train one network: torchrun, gloo or nccl, and torch's DDP.

BCD splits over samples exactly: U and V belong to their samples, and a W block needs only sums over
them. ``DistributedDataParallel`` adds up the gradients of stochastic BCD; the exact solver and the
scores ask their ``Team`` for sums. This module alone knows ``torch.distributed``.
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
from zeroone.utils.malloc import NotEnoughMemoryError

NEEDED = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}  # set by torchrun
TIMEOUT = "ZEROONE_TIMEOUT"  # seconds that a rank waits for another one
LONGEST_WAIT = 600.0
REFUSAL = "refusal"  # the name of a fact: why a rank cannot begin
SHORT = 30  # letters of a value that a sentence shows; digests are longer
Value = TypeVar("Value")


class LostRankError(InputError):
    """Another rank is gone or does not answer."""


class Team:
    """One process alone: what it has is what all ranks have."""

    rank, size = 0, 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def sum_(self, *tensors: Tensor) -> None:
        """Replace each tensor by its sum over the ranks."""

    def largest_(self, tensor: Tensor) -> None:
        """Replace a tensor by its largest entries over the ranks."""

    def total(self, *numbers: float) -> list[float]:
        """Sum numbers over the ranks, in double precision."""
        return list(numbers)

    def largest(self, *numbers: float) -> list[float]:
        """Find the largest of each number over the ranks."""
        return list(numbers)

    def joined(self, own: Tensor, rows: Tensor, n: int) -> Tensor:  # noqa: ARG002
        """Join the rows of all ranks to ``n`` rows; ``rows`` are the numbers of this rank's."""
        return own

    def first_word(self, value: Value) -> Value:
        """Return the first rank's value on all ranks."""
        return value

    @contextmanager
    def agree(self) -> Iterator[dict[str, Any]]:
        """Collect facts in a dictionary; all ranks raise an error if theirs differ.

        So they do if one of them raises an ``InputError`` in the block.
        """
        yield {}

    def wrap(self, module: nn.Module) -> nn.Module:
        """Make the module's gradients the mean over the ranks."""
        return module

    def listen(self, call: Callable[[], Value]) -> Value:
        """Call a function that talks to other ranks; raise ``LostRankError`` if one is gone."""
        return call()

    def describe(self) -> dict[str, Any]:
        """Count the ranks, for a record."""
        return {"count": self.size}

    def keep_state_in(self, path: Path) -> None:
        """Name the file of the run's state, for the message about a lost rank."""

    def slice(self, n: int) -> slice:
        """Cut this rank's part from n samples that all ranks have."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)


ALONE = Team()


class Ranks(Team):
    """The processes of ``torch.distributed``'s default group; ``halved`` sends bfloat16."""

    def __init__(self, *, halved: bool = False) -> None:
        from torch import distributed

        self._distributed: Any = distributed
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self.halved = halved
        self.state: Path | None = None

    def sum_(self, *tensors: Tensor) -> None:
        """Sum each tensor in a message of its own."""
        for tensor in tensors:
            self.listen(lambda T=tensor: self._distributed.all_reduce(T))  # type: ignore[misc]

    def largest_(self, tensor: Tensor) -> None:
        """Find the largest entries in one message."""
        how = self._distributed.ReduceOp.MAX
        self.listen(lambda: self._distributed.all_reduce(tensor, op=how))

    def total(self, *numbers: float) -> list[float]:
        """Sum the numbers in one message."""
        tensor = torch.tensor(numbers, dtype=torch.float64)
        self.sum_(tensor)
        return [float(number) for number in tensor]

    def largest(self, *numbers: float) -> list[float]:
        """Find the largest numbers in one message."""
        tensor = torch.tensor(numbers, dtype=torch.float64)
        self.largest_(tensor)
        return [float(number) for number in tensor]

    def joined(self, own: Tensor, rows: Tensor, n: int) -> Tensor:
        """Sum tensors that are zero except for each rank's rows."""
        everyone = torch.zeros(n, *own.shape[1:], dtype=own.dtype, device=own.device)
        everyone[rows] = own
        self.sum_(everyone)
        return everyone

    def first_word(self, value: Value) -> Value:
        """Send the first rank's value to all."""
        box = [value]
        cpu = torch.device("cpu")
        self.listen(lambda: self._distributed.broadcast_object_list(box, device=cpu))
        return box[0]

    @contextmanager
    def agree(self) -> Iterator[dict[str, Any]]:
        """Send the facts to all ranks, which come to the same answer."""
        facts: dict[str, Any] = {}
        try:
            yield facts
        except InputError as error:
            facts = {REFUSAL: str(error)}
        told = {name: str(value) for name, value in facts.items()}
        everyone: list[Any] = [None] * self.size
        self.listen(lambda: self._distributed.all_gather_object(everyone, told))
        _refuse_differences(everyone)

    def wrap(self, module: nn.Module) -> nn.Module:
        """Wrap the module in ``DistributedDataParallel``."""
        whole = nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)
        if self.halved:
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            # DDP refuses this hook by its name on the CPU, where gloo can add bfloat16 as well.
            def halve(group: Any, bucket: Any) -> Any:
                return default_hooks.bf16_compress_hook(group, bucket)

            halve.__annotations__.clear()
            whole.register_comm_hook(None, halve)
        return whole

    def listen(self, call: Callable[[], Value]) -> Value:
        """Notice lost ranks: a killed one closes its connections, a frozen one times out."""
        try:
            return call()
        except RuntimeError as error:
            if not _is_about_ranks(error):
                raise
            hint = "nothing was kept yet: the same command begins again"
            if self.state is not None and self.state.is_file():
                hint = f"the same command with --resume goes on from {self.state}"
            sentence = f"another rank was lost ({_first_line(error)}); {hint}."
            raise LostRankError(sentence) from None

    def keep_state_in(self, path: Path) -> None:
        """Keep the path."""
        self.state = path


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
def together(*, halved: bool = False, device: str = "cpu") -> Iterator[Team]:
    """Join the processes that torchrun started; a process without torchrun is alone.

    When a rank is lost, the others print one sentence and exit with code 2. When the input is
    wrong, only the first rank says so; when memory is short, the rank that has too little.
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
        with ranks.agree() as facts:
            facts["half sums"] = halved
        yield ranks
        ranks.listen(distributed.barrier)
    except LostRankError as error:
        # The group's threads still wait for the lost rank: an ordinary exit would wait with them.
        print(f"zeroone: {error}", file=sys.stderr, flush=True)
        os._exit(2)
    except InputError as error:
        if not ranks.is_first and not isinstance(error, NotEnoughMemoryError):
            raise SystemExit(2) from None
        raise
    else:
        distributed.destroy_process_group()


def _refuse_differences(everyone: list[dict[str, str]]) -> None:
    """Name the ranks that cannot begin, or differ from the first one, and what differs."""
    refusals = {rank: facts[REFUSAL] for rank, facts in enumerate(everyone) if REFUSAL in facts}
    for rank, sentence in refusals.items():
        shared = list(refusals.values()) == [sentence] * len(everyone)
        raise InputError(sentence if shared else f"rank {rank} cannot begin: {sentence}")
    first = everyone[0]
    others = [rank for rank, facts in enumerate(everyone) if facts != first]
    if not others:
        return
    differing: dict[str, str] = {}
    for facts in (everyone[rank] for rank in others):
        for name in sorted(first.keys() | facts.keys()):
            ours, theirs = first.get(name, "none"), facts.get(name, "none")
            if ours != theirs:
                short = len(ours + theirs) <= 2 * SHORT
                differing.setdefault(name, f"{name} ({theirs}, not {ours})" if short else name)
    who = f"rank {others[0]} differs" if len(others) == 1 else f"ranks {others} differ"
    raise InputError(f"{who} from rank 0 in {', '.join(differing.values())}: all must train alike.")


def _open_store() -> Any:
    """Open the store where the ranks meet; each restart has its own keys in it."""
    from torch import distributed

    made: Any = distributed  # torch does not declare its stores
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    by_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    is_master = os.environ["RANK"] == "0" and not by_launcher
    wait = timedelta(seconds=LONGEST_WAIT)
    store = made.TCPStore(host, port, is_master=is_master, timeout=wait)
    return made.PrefixStore(f"zeroone-{restarts()}", store)


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


def _is_about_ranks(error: RuntimeError) -> bool:
    """Tell an error in talking to other ranks from one in a computation here."""
    from torch import distributed

    said = str(error).lower()
    words = ("gloo", "nccl", "connection", "timed out", "timeout")
    return isinstance(error, distributed.DistError) or any(word in said for word in words)


def _first_line(error: BaseException) -> str:
    """Return what an error says, without the name of torch's file at its start."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[[^]]*\]\s*", "", line).split(". ")[0].rstrip(".")
