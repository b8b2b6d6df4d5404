"""A chain of layers as one torch module, which 0/1 networks and baselines share.

A layer is a linear map, an optional shortcut beside it, a pooling, an optional batch normalisation
and an activation. 0/1 networks have ``Step`` and no normalisation; baselines choose both.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from zeroone.nn.functional import channels_last
from zeroone.nn.layers import Layer, LayerPlan, Link, build_layers, links_of, recent
from zeroone.nn.pooling import NoPool

Linear = nn.Linear | nn.Conv2d
MakeActivation = Callable[[int], nn.Module]  # of a number of units


class ChainLayer(nn.Module):
    """One layer; without an activation it returns its pooled pre-activations."""

    def __init__(
        self,
        layer: Layer,
        convolution: type[nn.Conv2d],
        activation: nn.Module | None = None,
        *,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        self.plan = LayerPlan.of(layer)
        self.linear = layer.operator.as_module(convolution)
        shortcut = layer.shortcut
        self.shortcut = None if shortcut is None else shortcut.as_module(convolution)
        self.pool = layer.pool
        self.norm: nn.Module = nn.Identity()
        if batch_norm:
            flat = isinstance(self.linear, nn.Linear)
            self.norm = (nn.BatchNorm1d if flat else nn.BatchNorm2d)(layer.operator.n_out)
        self.activation = activation or nn.Identity()

    def forward(self, V: Sequence[Tensor]) -> Tensor:
        """Return the activations, given those so far."""
        U: Tensor = self.linear(self._inputs(V[-1]))
        if self.shortcut is not None:
            U = U + self.shortcut(self._inputs(V[-self.plan.skip]))
        out: Tensor = self.activation(self.norm(self.pool(U)))
        return out

    def __repr__(self) -> str:
        """Show what there is in one line."""
        plain = (nn.Identity, NoPool)
        parts = [f"{n}={m!r}" for n, m in self.named_children() if not isinstance(m, plain)]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _inputs(self, V: Tensor) -> Tensor:
        """Return activations in the form that a linear map takes: flat, or images."""
        return channels_last(V) if self.plan.kernel else V.flatten(1)


class Chain(nn.Module):
    """Layers from scaled inputs, or from the features of a backbone, to the scores."""

    def __init__(
        self,
        layers: Sequence[Layer],
        activation: MakeActivation,
        convolution: type[nn.Conv2d] = nn.Conv2d,
        *,
        backbone: nn.Module | None = None,
        batch_norm: bool = False,
    ) -> None:
        """Copy the weights of some layers.

        Args:
            layers: the layers, the last one for the scores.
            activation: makes the activation of a hidden layer of so many units.
            convolution: the class of modules that convolve.
            backbone: a backbone that makes features of the inputs.
            batch_norm: whether hidden layers are normalised before their activation.

        """
        super().__init__()
        self.backbone, self.shape_in = backbone, layers[0].operator.shape_in
        *hidden, last = layers
        self.layers = nn.ModuleList(
            ChainLayer(x, convolution, activation(x.operator.n_out), batch_norm=batch_norm)
            for x in hidden
        )
        self.layers.append(ChainLayer(last, convolution))

    @property
    def chain(self) -> list[ChainLayer]:
        """The layers, the first one first."""
        return cast(list[ChainLayer], list(self.layers))

    def forward(self, V0: Tensor) -> Tensor:
        """Return the scores of scaled inputs."""
        features = V0 if self.backbone is None else self.backbone(V0)
        samples = features.reshape(features.shape[0], *self.shape_in)
        V = recent(samples, (x.plan.skip for x in self.chain))
        for layer in self.layers:
            V.append(layer(V))
        return V[-1]

    @property
    def activations(self) -> list[nn.Module]:
        """The activations of the hidden layers, the first one first."""
        return [layer.activation for layer in self.chain[:-1]]

    def as_layers(self) -> list[Layer]:
        """Return copies of the layers as a network holds them, with the units that are left."""
        plans = [replace(x.plan, units=len(x.linear.weight)) for x in self.chain]
        maps = [linear for x in self.chain for linear in (x.linear, x.shortcut)]
        weights = (as_matrix(linear) for linear in maps if linear is not None)
        return build_layers(plans, self.shape_in, lambda *_: next(weights))

    @property
    def links(self) -> list[Link]:
        """Copies of the linear maps in their places, as they are counted."""
        return links_of(self.as_layers())


def as_matrix(linear: Linear) -> Tensor:
    """Return a copy of the weights as an operator holds them, the biases in the last column."""
    matrix = linear.weight.detach().flatten(1).clone()
    if linear.bias is None:
        return matrix
    return torch.cat([matrix, linear.bias.detach()[:, None]], dim=1)
