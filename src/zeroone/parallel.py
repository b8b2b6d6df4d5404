"""Several processes that train one network together: only this file knows torch.distributed.

BCD splits over samples exactly: U and V belong to their samples, and all that a W block needs of
them are sums. A solver asks its ``Team`` for these; alone, a team has nothing to add.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class Team:
    """One process, alone: all sums are its own."""

    rank, size = 0, 1

    def sum_(self, *tensors: Tensor) -> None:
        """Replace each tensor by its sum over the ranks."""

    def sum_symmetric_(self, matrix: Tensor) -> None:
        """The same of a symmetric matrix."""

    def sum_later(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Begin to add up a tensor; what is returned waits for it and gives the sum."""
        return lambda: tensor

    def total(self, *numbers: float) -> list[float]:
        """Sums of numbers, in double precision."""
        return list(numbers)

    def largest(self, *numbers: float) -> list[float]:
        """The largest over the ranks of each number."""
        return list(numbers)


ALONE = Team()


class Ranks(Team):
    """The processes of a ``torch.distributed`` group, the default one."""

    def __init__(self) -> None:
        from torch import distributed

        self._distributed: Any = distributed
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def sum_(self, *tensors: Tensor) -> None:
        """Small ones of one dtype travel together."""
        if len(tensors) == 1:
            self._distributed.all_reduce(tensors[0])
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self._distributed.all_reduce(flat)
        start = 0
        for tensor in tensors:
            tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
            start += tensor.numel()

    def sum_symmetric_(self, matrix: Tensor) -> None:
        """As a triangle: half the traffic."""
        i, j = torch.triu_indices(len(matrix), len(matrix))
        half = matrix[i, j]
        self._distributed.all_reduce(half)
        matrix[i, j] = half
        matrix[j, i] = half

    def sum_later(self, tensor: Tensor) -> Callable[[], Tensor]:
        """The sum travels while other work is done."""
        tensor = tensor.contiguous()
        work = self._distributed.all_reduce(tensor, async_op=True)

        def wait() -> Tensor:
            work.wait()
            return tensor

        return wait

    def total(self, *numbers: float) -> list[float]:
        """In one message."""
        return self._reduced(numbers, self._distributed.ReduceOp.SUM)

    def largest(self, *numbers: float) -> list[float]:
        """In one message."""
        return self._reduced(numbers, self._distributed.ReduceOp.MAX)

    def _reduced(self, numbers: tuple[float, ...], how: Any) -> list[float]:
        tensor = torch.tensor(numbers, dtype=torch.float64)
        self._distributed.all_reduce(tensor, op=how)
        return [float(number) for number in tensor]


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
