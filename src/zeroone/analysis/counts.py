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
from zeroone.nn.operators import Operator

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
    for op, below, above in _active_operators(model):
        total += above * (below * op.group + op.n_free)
    return total


def operations(model: Model) -> Operations:
    """Count the operations of one prediction."""
    total = Operations()
    pairs = zip(_active_operators(model), model.takes_bits, strict=True)
    for (op, below, above), bits in pairs:
        total += Operations.of_products(above * op.positions, below * op.group, bits)
    if model.backbone is not None:
        total += walk(model.backbone, model.n_features).operations
    return total


def alive_units(model: Model) -> list[Tensor]:
    """Mark who reaches the head: of the inputs, of each hidden layer's units and of the classes.

    A unit that feeds only dead units is dead, so the marks go from the head down. A unit with
    several bits is alive if one of them is, and so is a unit whose sum a stream carries on to an
    alive one.
    """
    layers = model.operators
    alive = [torch.ones(layers[-1].n_out, dtype=torch.bool)]
    for i in reversed(range(len(layers))):
        op = layers[i]
        found = active_columns(op.weight[alive[0]], op.group, op.n_free).cpu()
        if i:
            units = layers[i - 1].n_out
            found = found.view(-1, units).any(dim=0)
            if model.streams[i]:
                found |= alive[0].view(-1, units).any(dim=0)
        alive.insert(0, found)
    return alive


def _active_operators(model: Model) -> Iterator[tuple[Operator, int, int]]:
    """Yield each operator with the numbers of active inputs below and of active units above it."""
    marks = alive_units(model)
    units = [int(alive.sum()) for alive in marks]
    for i, op in enumerate(model.operators):
        yield op, op.n_in // len(marks[i]) * units[i], units[i + 1]  # a unit may have several bits


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
