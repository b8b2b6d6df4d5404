"""Several processes that train one network together: only this file knows torch.distributed.

BCD splits over samples exactly: U and V belong to their samples, and all that a W block needs of
them are sums. A solver asks its ``Team`` for these; alone, a team has nothing to add.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from zeroone.checks import InputError
from zeroone.device import find_device
from zeroone.postbox import Postbox, join, reserve
from zeroone.watch import LostRankError, Watch

LONGEST_WAIT = timedelta(hours=24)  # for a sum: who hangs is found by the watch, not by this
NEEDED = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}  # what torchrun tells a process
SWITCH = "ZEROONE_SHARED_MEMORY"
MOST_READERS = 8  # each reads what every other wrote
Value = TypeVar("Value")
Later = Callable[[], Tensor]  # what waits for a tensor
Combine = Callable[[list[Tensor]], Tensor]  # what makes one of all ranks'


class Team:
    """One process, alone: all sums are its own."""

    rank, size = 0, 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and talks."""
        return self.rank == 0

    def sum_(self, *tensors: Tensor) -> None:
        """Replace each tensor by its sum over the ranks."""

    def sum_symmetric_(self, matrix: Tensor) -> None:
        """The same of a symmetric matrix."""

    def largest_(self, tensor: Tensor) -> None:
        """Replace a tensor by the largest over the ranks, entry by entry."""

    def sum_later(self, name: str, *tensors: Tensor) -> Callable[[], list[Tensor]]:  # noqa: ARG002
        """Begin to add up tensors; what is returned waits for the sums and gives them.

        ``name``: what they are, the same from batch to batch; "" for what must not be rounded.
        """
        return lambda: list(tensors)

    def gather_later(self, own: Tensor, n: int) -> Callable[[], Tensor]:  # noqa: ARG002
        """Begin to collect n rows, of which this rank has its ``chunk``."""
        return lambda: own

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

    def describe(self) -> dict[str, Any]:
        """For a record: how many ranks there are, and what they said to each other."""
        return {"count": self.size}

    def keep_state_in(self, path: Path) -> None:
        """Where the state of the run is kept, for whoever has to say how to go on."""

    def chunk(self, n: int) -> slice:
        """The part of n rows that is this rank's, of the same size for all but the last."""
        each = -(-n // self.size)
        return slice(min(n, each * self.rank), min(n, each * (self.rank + 1)))

    def slice(self, n: int) -> slice:
        """The part of n samples that is this rank's, where all ranks have all of them."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)


ALONE = Team()


class Ranks(Team):
    """The processes of a ``torch.distributed`` group, the default one.

    On one machine messages go through memory that all see (see ``share_memory``), elsewhere and
    where they do not fit through the group.

    ``sent``: bytes that were handed over to the group, ``shared``: to memory, and ``waited``:
    seconds for others', in the group.
    ``halved``: sums of W blocks travel as bfloat16; what this rank's rounding takes away is added
    to its next.
    """

    def __init__(self, watch: Watch | None = None, *, halved: bool = False) -> None:
        from torch import distributed

        self._distributed: Any = distributed
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self.watch, self.halved = watch, halved
        self.sent, self.shared, self.waited = 0, 0, 0.0
        self._missing: dict[str, Tensor] = {}
        self.postbox: Postbox | None = None

    def share_memory(self) -> None:
        """Use memory for messages, if the ranks are on one machine and have room there."""
        found = self.first_word(reserve(self.size) if self.is_first else None)
        if found is None:
            return
        path, half = found
        try:
            postbox = join(path, self.rank, self.size, half)
            everyone = self.total(postbox is not None)[0] == self.size
        finally:
            if self.is_first:
                path.unlink()  # it lives as long as the ranks do
        self.postbox = postbox if everyone else None

    def sum_(self, *tensors: Tensor) -> None:
        """Small ones of one dtype travel together."""
        for tensor, total in zip(tensors, self.sum_later("", *tensors)(), strict=True):
            tensor.copy_(total)

    def sum_symmetric_(self, matrix: Tensor) -> None:
        """As a triangle, half the traffic; where there is no traffic, as it is."""
        if self.postbox is not None and self.postbox.takes(matrix):
            self.sum_(matrix)
            return
        i, j = torch.triu_indices(len(matrix), len(matrix), device=matrix.device)
        half = matrix[i, j]
        self.sum_(half)
        matrix[i, j] = half
        matrix[j, i] = half

    def largest_(self, tensor: Tensor) -> None:
        """Like a sum."""
        tensor.copy_(self._combine_later([tensor], largest=True)().view_as(tensor))

    def sum_later(self, name: str, *tensors: Tensor) -> Callable[[], list[Tensor]]:
        """The sums travel together, while other work is done."""
        if not tensors:
            return list
        sent, dtype = list(tensors), tensors[0].dtype
        if self.halved and name:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            sent = [self._rounded(flat, name)]
        totals = self._combine_later(sent)

        def wait() -> list[Tensor]:
            parts = torch.split(totals().to(dtype), [tensor.numel() for tensor in tensors])
            return [p.view_as(tensor) for p, tensor in zip(parts, tensors, strict=True)]

        return wait

    def gather_later(self, own: Tensor, n: int) -> Callable[[], Tensor]:
        """Chunks of one size travel; what the last ones lack is left away at the end."""
        each = -(-n // self.size)
        sent = own.new_zeros(each, *own.shape[1:])
        sent[: len(own)] = own
        read = self._post(sent)
        if read is not None:
            return lambda: read(torch.cat).view(-1, *own.shape[1:])[:n]
        everyone = own.new_empty(each * self.size, *own.shape[1:])
        # Older versions of torch have it by its older name.
        names = ("all_gather_single", "all_gather_into_tensor")
        gather = next(getattr(self._distributed, x) for x in names if hasattr(self._distributed, x))
        self.sent += _bytes(sent)
        work = self._try(lambda: gather(everyone, sent, async_op=True))

        def wait() -> Tensor:
            self._wait(work.wait)
            return everyone[:n]

        return wait

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
        self._wait(lambda: self._distributed.broadcast_object_list(box, device=cpu))
        return box[0]

    def wait_for_all(self) -> None:
        """Until every rank has come here."""
        self._wait(self._distributed.barrier)

    def describe(self) -> dict[str, Any]:
        """With the bytes that this rank handed over, and the seconds that it waited for sums."""
        waited = self.waited + (0.0 if self.postbox is None else self.postbox.waited)
        said = {"bytes_sent": self.sent, "bytes_shared": self.shared, "waited": waited}
        return {"count": self.size} | said

    def keep_state_in(self, path: Path) -> None:
        """The watch may have to say it."""
        if self.watch is not None:
            self.watch.state = path

    def _rounded(self, tensor: Tensor, name: str) -> Tensor:
        """As bfloat16; what is lost stays here until the next time."""
        missing = self._missing.get(name)
        wanted = tensor if missing is None or missing.shape != tensor.shape else tensor + missing
        sent = wanted.to(torch.bfloat16)
        self._missing[name] = wanted - sent
        return sent

    def _combine_later(self, tensors: list[Tensor], *, largest: bool = False) -> Later:
        """Begin to add up tensors of one dtype, or to find the largest; the result is flat."""
        if len({tensor.dtype for tensor in tensors}) > 1:
            raise ValueError("tensors that travel together are of one dtype")
        read = self._post(*tensors)
        if read is not None:
            pairwise = torch.maximum if largest else torch.add
            return lambda: read(lambda found: reduce(pairwise, map(_widened, found)))
        ways = self._distributed.ReduceOp
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self.sent += _bytes(flat)
        how = ways.MAX if largest else ways.SUM
        work = self._try(lambda: self._distributed.all_reduce(flat, op=how, async_op=True))

        def wait() -> Tensor:
            self._wait(work.wait)
            return flat

        return wait

    def _post(self, *tensors: Tensor) -> Callable[[Combine], Tensor] | None:
        """Show tensors to the others in memory, if they fit; what is returned reads all ranks'."""
        postbox = self.postbox
        if postbox is None:
            return None
        note = self._try(lambda: postbox.post(*tensors, wait=self._look))
        if note is None:
            return None
        self.shared += sum(map(_bytes, tensors))

        def read(combine: Combine) -> Tensor:
            made = combine(self._try(lambda: postbox.read(note, self._look)))
            postbox.close(note)
            return made

        return read

    def _look(self) -> None:
        """While waiting for others: whether one of them is lost."""
        if self.watch is not None and self.watch.lost is not None:
            raise self.watch.lost

    def _wait(self, call: Callable[[], Any]) -> Any:
        """For others, in the group; in memory the postbox counts the seconds."""
        begun = time.perf_counter()
        try:
            return self._try(call)
        finally:
            self.waited += time.perf_counter() - begun

    def _try(self, call: Callable[[], Any]) -> Any:
        """A rank that is lost shows in a sum that fails."""
        try:
            return call()
        except RuntimeError as error:
            if self.watch is None:
                raise
            raise self.watch.find_lost(f"a sum failed ({_first_line(error)})") from None


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

    def first(self, n: int) -> Any:
        """An index of those rows of this rank that are among the batch's first n."""
        return slice(n) if self.places is None else self.places < n


def _widened(tensor: Tensor) -> Tensor:
    """As it is added up: sums of bfloat16 would be rounded each time."""
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def restarts() -> int:
    """How often torchrun has started this process anew."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@contextmanager
def together(*, halved: bool = False, device: str = "cpu") -> Iterator[Team]:
    """The team of the processes that torchrun started; alone where there is just one.

    A rank that is lost ends the others in one sentence. One that fails tells them why.
    """
    if not os.environ.keys() >= NEEDED or os.environ["WORLD_SIZE"] == "1":
        yield ALONE
        return
    from torch import distributed

    cuda = _take_gpu(device)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # Where nobody else keeps the meeting point, the first rank does.
    by_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=_open_store("group", keep=rank == 0 and not by_launcher),
            rank=rank,
            world_size=size,
            timeout=LONGEST_WAIT,
        )
        watch = Watch(rank, size, lambda: _open_store("watch", seconds=10))
        watch.start()
    except (RuntimeError, ValueError) as error:
        raise InputError(f"the ranks did not find each other: {_first_line(error)}") from None
    try:
        ranks = Ranks(watch, halved=halved)
        if not cuda and os.environ.get(SWITCH) != "0" and _on_one_machine(size):
            ranks.share_memory()
        yield ranks
        ranks.wait_for_all()
    except LostRankError:
        raise
    except BaseException as error:
        news = watch.tell(error)
        if isinstance(error, InputError):
            if not news:
                raise SystemExit(2) from None  # the first rank has said it
            if watch.has_state:
                raise watch.stopped(error) from None
        raise
    else:
        distributed.destroy_process_group()
    finally:
        watch.stop()


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


def _on_one_machine(size: int) -> bool:
    return os.environ.get("LOCAL_WORLD_SIZE") == str(size) and size <= MOST_READERS


def _open_store(name: str, *, keep: bool = False, seconds: float = 600) -> Any:
    """A connection to where ranks meet. After a restart what was said before does not count."""
    from torch import distributed

    made: Any = distributed  # its stores are not declared
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = made.TCPStore(host, port, is_master=keep, timeout=timedelta(seconds=seconds))
    return made.PrefixStore(f"zeroone-{name}-{restarts()}", store)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
