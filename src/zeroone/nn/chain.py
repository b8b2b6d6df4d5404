"""A chain of layers as one torch module, which 0/1 networks and baselines share.

A layer is a linear map, perhaps the sums of the layer below, a pooling, an optional batch
normalisation and an activation. 0/1 networks have ``Step``; layers with ``bits`` are normalised,
without trained parameters, and the network's thresholds absorb that. Baselines choose both.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from zeroone.nn.functional import channels_last
from zeroone.nn.layers import Layer, LayerPlan, add_stream, build_layers, thresholds_of
from zeroone.nn.operators import Operator
from zeroone.nn.pooling import NoPool

Linear = nn.Linear | nn.Conv2d
NORMS = nn.BatchNorm1d | nn.BatchNorm2d
MakeActivation = Callable[[Layer], nn.Module]  # of a hidden layer


class ChainLayer(nn.Module):
    """One layer: activations and pre-activations of the layer below in, its own out."""

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
        self.pool = layer.pool
        self.norm: nn.Module = nn.Identity()
        if batch_norm or layer.bits:
            norm = nn.BatchNorm1d if isinstance(self.linear, nn.Linear) else nn.BatchNorm2d
            dtype = self.linear.weight.dtype
            self.norm = norm(layer.operator.n_out, affine=batch_norm, dtype=dtype)
            if layer.bits:
                self._take_thresholds(layer.thresholds)
        self.activation = activation or nn.Identity()

    def forward(self, V: Tensor, below: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the activations and the pooled pre-activations; without an activation, equal."""
        U: Tensor = self.linear(self._inputs(V))
        U = self.pool(add_stream(U, below) if self.plan.stream else U)
        if self.training:  # a single sample has no deviation: take that of those before it
            self.norm.train(len(U) > 1)
        return self.activation(self.norm(U)), U

    def as_layer(self, operator: Operator) -> Layer:
        """Return a layer of a network with this operator; thresholds absorb the normalisation."""
        layer = Layer(operator, self.pool, self.plan.stream, self.plan.bits)
        if layer.bits and isinstance(self.norm, NORMS) and not self.norm.affine:
            mean, variance = self.norm.running_mean, self.norm.running_var
            assert mean is not None
            assert variance is not None
            deviation = (variance.double() + self.norm.eps).sqrt()
            limits = torch.tensor(thresholds_of(layer.bits)).to(deviation)
            made = mean.double() + limits[:, None] * deviation
            layer.thresholds = made.to(operator.weight.dtype)
        return layer

    def _take_thresholds(self, thresholds: Tensor | None) -> None:
        """Set the running statistics so that evaluation compares with a layer's thresholds."""
        assert isinstance(self.norm, NORMS)
        mean, variance = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert variance is not None
        deviation = torch.ones_like(variance, dtype=torch.float64)
        if thresholds is not None:
            mean.copy_(thresholds.double().mean(dim=0))
            limits = thresholds_of(self.plan.bits)
            if len(limits) > 1:
                deviation = (thresholds[-1] - thresholds[0]).double() / (limits[-1] - limits[0])
        variance.copy_((deviation.square() - self.norm.eps).clamp_min(0))

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
            activation: makes the activation of a hidden layer.
            convolution: the class of modules that convolve.
            backbone: a backbone that makes features of the inputs.
            batch_norm: whether hidden layers are normalised before their activation.

        """
        super().__init__()
        self.backbone, self.shape_in = backbone, layers[0].operator.shape_in
        *hidden, last = layers
        self.layers = nn.ModuleList(
            ChainLayer(x, convolution, activation(x), batch_norm=batch_norm) for x in hidden
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
        V, U = samples, None
        for layer in self.layers:
            V, U = layer(V, U)
        return V

    def as_layers(self) -> list[Layer]:
        """Return copies of the layers as a network holds them, with the units that are left."""
        built = self._built([as_matrix(x.linear) for x in self.chain])
        pairs = zip(self.chain, built, strict=True)
        return [x.as_layer(layer.operator) for x, layer in pairs]

    def layers_of(self, state: dict[str, Tensor]) -> list[Layer]:
        """Return layers with the weights of a ``state_dict``, in which units may have left."""
        weights = []
        for i in range(len(self.chain)):
            W = state[f"layers.{i}.linear.weight"].flatten(1)
            bias = state.get(f"layers.{i}.linear.bias")
            weights.append(W if bias is None else torch.cat([W, bias[:, None]], dim=1))
        return self._built(weights)

    def _built(self, weights: list[Tensor]) -> list[Layer]:
        """Return layers with these weights."""
        pairs = zip(self.chain, weights, strict=True)
        plans, drawn = [replace(x.plan, units=len(W)) for x, W in pairs], iter(weights)
        return build_layers(plans, self.shape_in, lambda *_: next(drawn))

    @property
    def streams(self) -> list[bool]:
        """Whether each layer adds the sums of the layer below to its own."""
        return [x.plan.stream for x in self.chain]

    @property
    def operators(self) -> list[Operator]:
        """Copies of the linear maps, the first one first, as they are counted."""
        return [layer.operator for layer in self.as_layers()]


def as_matrix(linear: Linear) -> Tensor:
    """Return a copy of the weights as an operator holds them, the biases in the last column."""
    matrix = linear.weight.detach().flatten(1).clone()
    if linear.bias is None:
        return matrix
    return torch.cat([matrix, linear.bias.detach()[:, None]], dim=1)
