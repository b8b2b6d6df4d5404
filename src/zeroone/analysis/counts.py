"""Counts what a network consists of and what a prediction costs: units, parameters, operations.

Dead units do not count: every number is that of the network after their removal. docs/measures.md
defines the numbers.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zeroone.analysis.metrics import Model
from zeroone.exact.weights import active_columns
from zeroone.nn.layers import Link

WORD = 64  # bits in a machine word
KEEP_BITS = (nn.MaxPool2d, nn.Flatten, nn.Identity)  # modules that map bits to bits


@dataclass(frozen=True)
class Operations:
    """The operations of one prediction.

    Attributes:
        macs: Multiply-adds, where inputs are real numbers.
        additions: Additions without a multiplication, where inputs have two values.
        word_operations: Operations on words of 64 such inputs if the weights had one bit as well.
    """

    macs: int = 0
    additions: int = 0
    word_operations: int = 0

    def __add__(self, other: "Operations") -> "Operations":
        return Operations(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    @classmethod
    def of_products(cls, outputs: int, fan_in: int, bits: bool) -> "Operations":
        """Count the operations of ``outputs`` inner products over ``fan_in`` inputs each."""
        if bits:
            return cls(additions=outputs * fan_in, word_operations=outputs * -(-fan_in // WORD))
        return cls(macs=outputs * fan_in)


def counts(model: Model) -> dict[str, Any]:
    """Count units, parameters and operations, for a record."""
    return {
        "active_units": active_units(model),
        "active_inputs": active_inputs(model),
        "parameters": parameters(model),
        "operations": asdict(operations(model)),
    }


def active_units(model: Model) -> list[int]:
    """Count the units of each hidden layer that reach the head."""
    return [int(alive.sum()) for alive in alive_units(model)[1:-1]]


def active_inputs(model: Model) -> int:
    """Count the inputs, or features of the backbone, that reach the head."""
    return int(alive_units(model)[0].sum())


def parameters(model: Model) -> int:
    """Count the weights and biases between units that reach the head, and all of a backbone.

    Factors of whole dense units (batch normalisation, a trained scale) fold into their weights and
    thresholds, so they do not count.
    """
    total = 0 if model.backbone is None else sum(p.numel() for p in model.backbone.parameters())
    for link, below, above in _active_links(model):
        total += above * (below * link.operator.group + link.operator.n_free)
    return total


def operations(model: Model) -> Operations:
    """Count the operations of one prediction."""
    total = Operations()
    for link, below, above in _active_links(model):
        outputs, fan_in = above * link.operator.positions, below * link.operator.group
        total += Operations.of_products(outputs, fan_in, model.takes_bits[link.source])
    if model.backbone is not None:
        total += walk(model.backbone, model.n_features).operations
    return total


def alive_units(model: Model) -> list[Tensor]:
    """Mark who reaches the head: of the inputs, of each hidden layer's units and of the classes.

    A unit that feeds only dead units is dead, so the marks go from the head down. A unit with
    several bits is alive if one of them is.
    """
    links = model.links
    last = max(links, key=lambda link: link.source)
    n = last.layer + 1
    alive = {n: torch.ones(last.operator.n_out, dtype=torch.bool)}  # of V[i], by i
    units = {link.layer + 1: link.operator.n_out for link in links}
    for i in reversed(range(n)):
        reaching = [
            active_columns(
                x.operator.weight[alive[x.layer + 1]], x.operator.group, x.operator.n_free
            ).cpu()
            for x in links
            if x.source == i
        ]
        found = torch.stack(reaching).any(dim=0)
        alive[i] = found.view(-1, units[i]).any(dim=0) if i else found
    return [alive[i] for i in sorted(alive)]


def _active_links(model: Model) -> Iterator[tuple[Link, int, int]]:
    """Yield each link with the numbers of active units below and above it."""
    marks = alive_units(model)
    units = [int(alive.sum()) for alive in marks]
    for link in model.links:
        bits = link.operator.n_in // len(marks[link.source])  # of a unit below
        yield link, bits * units[link.source], units[link.layer + 1]


@dataclass(frozen=True)
class Walk:
    """The features and the cost of a module, by one sample's way through it."""

    n_features: int
    bits: bool  # whether the features have two values only
    operations: Operations


def walk(backbone: nn.Module, n_inputs: int) -> Walk:
    """Send one sample of ``n_inputs`` real numbers through a module and count its operations.

    Convolutions and linear maps count. The outputs of 1-bit activations carry a mark, through
    max-pooling, to the layer that takes them.
    """
    total: list[Operations] = []

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        bits = getattr(inputs[0], "bits", False)
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = math.prod(module.weight.shape[1:])
            total.append(Operations.of_products(output[0].numel(), fan_in, bits))
        elif getattr(module, "one_bit", False) or (bits and isinstance(module, KEEP_BITS)):
            output.bits = True  # type: ignore[attr-defined]

    training = backbone.training
    handles = [module.register_forward_hook(count) for module in backbone.modules()]
    sample = torch.zeros(1, n_inputs, dtype=next(backbone.parameters()).dtype)
    try:
        with torch.no_grad():
            features = backbone.eval()(sample)
    finally:
        backbone.train(training)
        for handle in handles:
            handle.remove()
    return Walk(features.shape[1], getattr(features, "bits", False), sum(total, Operations()))
