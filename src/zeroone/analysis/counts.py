"""What a network consists of and what a prediction costs: units, parameters, operations.

Dead units do not count: each number is that of the network once they are physically removed.
docs/measures.md defines every number.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from zeroone.exact.penalty import active_columns
from zeroone.nn.layers import Link, make_links
from zeroone.nn.operators import Operator

WORD = 64  # bits that one operation on a machine word handles
KEEP_BITS = (nn.MaxPool2d, nn.Flatten, nn.Identity)  # modules that make bits of bits


class Layered(Protocol):
    """A network as it is counted: a chain of operators, perhaps on a body of other modules.

    Units are removed from the chain. It may have shortcuts, a sequence of ``Link`` under the
    attribute ``shortcuts``. A body, ``nn.Module`` under the attribute ``body``, counts as it
    stands.
    """

    @property
    def operators(self) -> Sequence[Operator]:
        """From the inputs, or the body's outputs, to the classes."""

    @property
    def takes_bits(self) -> Sequence[bool]:
        """For each operator whether its inputs have two values only."""


@dataclass(frozen=True)
class Operations:
    """Of one prediction.

    macs: multiply-adds, where inputs are real numbers
    additions: additions without a multiplication, where inputs have two values
    word_operations: on words of 64 such inputs, if the weights had one bit as well
    """

    macs: int = 0
    additions: int = 0
    word_operations: int = 0

    def __add__(self, other: "Operations") -> "Operations":
        return Operations(
            self.macs + other.macs,
            self.additions + other.additions,
            self.word_operations + other.word_operations,
        )

    @classmethod
    def of_products(cls, outputs: int, fan_in: int, bits: bool) -> "Operations":
        """``outputs`` inner products of ``fan_in`` inputs each."""
        if bits:
            return cls(additions=outputs * fan_in, word_operations=outputs * -(-fan_in // WORD))
        return cls(macs=outputs * fan_in)


def counts(model: Layered) -> dict[str, Any]:
    """All of them, for a record."""
    left = _active(model)
    return {
        "active_units": left.units[1:-1],
        "active_inputs": left.units[0],
        "parameters": _parameters(model, left),
        "operations": asdict(_operations(model, left)),
    }


def active_units(model: Layered) -> list[int]:
    """How many units of each hidden layer still reach the head."""
    return _active(model).units[1:-1]


def active_inputs(model: Layered) -> int:
    """How many input features, or outputs of the body, still reach the head."""
    return _active(model).units[0]


def parameters(model: Layered) -> int:
    """Weights and biases that are left, and the parameters of a body as it stands.

    Factors of whole dense units (batch normalisation, a trained scale) fold into their weights and
    thresholds: they do not count.
    """
    return _parameters(model, _active(model))


def operations(model: Layered) -> Operations:
    """What one prediction costs."""
    return _operations(model, _active(model))


@dataclass(frozen=True)
class _Active:
    """What is left of a network without the units that cannot reach the head."""

    links: list[Link]
    units: list[int]  # how many: inputs, units of each hidden layer, classes

    def ends(self, link: Link) -> tuple[int, int]:
        """How many units a link comes from, and how many it goes to."""
        return self.units[link.source], self.units[link.layer + 1]


def _active(model: Layered) -> _Active:
    """How many units are left, and between them what links."""
    links = make_links(model.operators, getattr(model, "shortcuts", ()))
    return _Active(links, [int(alive.sum()) for alive in alive_units(model)])


def alive_units(model: Layered) -> list[Tensor]:
    """Of the inputs, of the units of each hidden layer and of the classes: who reaches the head.

    From the head down: a unit that feeds only dead units is dead as well. One consumer that is
    alive is enough.
    """
    operators = model.operators
    links = make_links(operators, getattr(model, "shortcuts", ()))
    alive = {len(operators): torch.ones(operators[-1].n_out, dtype=torch.bool)}  # of V[i], by i
    for i in reversed(range(len(operators))):
        reaching = [
            active_columns(
                x.operator.weight[alive[x.layer + 1]], x.operator.group, x.operator.n_free
            ).cpu()
            for x in links
            if x.source == i
        ]
        alive[i] = torch.stack(reaching).any(dim=0)
    return [alive[i] for i in sorted(alive)]


def _parameters(model: Layered, left: _Active) -> int:
    body = getattr(model, "body", None)
    total = 0 if body is None else sum(p.numel() for p in body.parameters())
    for link in left.links:
        below, above = left.ends(link)
        total += above * (below * link.operator.group + link.operator.n_free)
    return total


def _operations(model: Layered, left: _Active) -> Operations:
    total = Operations()
    for link in left.links:
        below, above = left.ends(link)
        outputs, fan_in = above * link.operator.positions, below * link.operator.group
        total += Operations.of_products(outputs, fan_in, model.takes_bits[link.source])
    body = getattr(model, "body", None)
    if body is not None:
        total += walk(body, model.n_features).operations  # type: ignore[attr-defined]
    return total


@dataclass(frozen=True)
class Walk:
    """What one sample's way through a module shows."""

    n_features: int
    bits: bool  # whether they have two values only
    operations: Operations


def walk(body: nn.Module, n_inputs: int) -> Walk:
    """Send one sample of ``n_inputs`` real numbers through a module and count as it goes.

    Convolutions and linear maps count. The outputs of 1-bit activations carry a mark, through
    poolings of the largest, to the layer that takes them.
    """
    parts: list[Operations] = []
    with _watching(body, parts), torch.no_grad():
        features = body(torch.zeros(1, n_inputs, dtype=next(body.parameters()).dtype))
    return Walk(features.shape[1], getattr(features, "bits", False), sum(parts, Operations()))


@contextmanager
def _watching(body: nn.Module, parts: list[Operations]) -> Iterator[None]:
    """Hooks add the operations of each layer to ``parts``; meanwhile the module evaluates."""

    def watch(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        bits = getattr(inputs[0], "bits", False)
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = math.prod(module.weight.shape[1:])
            parts.append(Operations.of_products(output[0].numel(), fan_in, bits))
        elif getattr(module, "one_bit", False) or (bits and isinstance(module, KEEP_BITS)):
            output.bits = True  # type: ignore[attr-defined]

    training = body.training
    handles = [module.register_forward_hook(watch) for module in body.modules()]
    body.eval()
    try:
        yield
    finally:
        body.train(training)
        for handle in handles:
            handle.remove()
