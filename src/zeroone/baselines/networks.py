"""A network with any activation: an optional backbone, then the layers that 0/1 networks have."""

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from zeroone.analysis.counts import walk
from zeroone.baselines.activations import ACTIVATIONS, Kind, OneBit
from zeroone.baselines.settings import BaselineSettings
from zeroone.nn.backbones import Backbone, make_backbone
from zeroone.nn.chain import Chain, as_matrix
from zeroone.nn.functional import channels_last
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.layers import Layer, LayerPlan, build_layers, check_image, thresholds_of
from zeroone.nn.operators import Convolution, Shape
from zeroone.nn.scaling import Scaling


class FloatNetwork(Chain):
    """An optional backbone, then layers, each hidden one with the baseline's activation."""

    targets = SoftmaxCE.targets

    def __init__(
        self,
        widths: list[int | str],
        settings: BaselineSettings,
        scaling: Scaling,
        image: Shape | None = None,
    ) -> None:
        """Build the network with torch's own start.

        ``widths`` are the numbers of inputs, the hidden layers as ``LayerPlan`` reads them, and the
        number of classes.
        """
        n_in, *hidden, n_classes = widths
        plans = [LayerPlan.parse(width) for width in hidden]
        activation = ACTIVATIONS[settings.activation]
        if not activation.one_bit:  # real activations need one threshold only
            plans = [replace(plan, bits=0) for plan in plans]
        shape: Shape = (int(n_in),)
        backbone, bits = None, False
        if settings.backbone is not None:
            in_body = activation if settings.backbone_activation == "own" else ACTIVATIONS["relu"]
            backbone = make_backbone(settings.backbone, image, in_body)
            walked = walk(backbone, int(n_in))
            shape, bits = (walked.n_features,), walked.bits
        elif plans and plans[0].kernel:
            shape = check_image(image)
        layers = build_layers([*plans, LayerPlan(int(n_classes))], shape, _draw)
        norm = settings.batch_norm
        super().__init__(
            layers, partial(_activate, activation), Convolution, backbone=backbone, batch_norm=norm
        )
        self.scaling, self.n_features = scaling, int(n_in)
        self.takes_bits = [bits, *(activation.one_bit for _ in plans)]
        channels_last(self)

    @property
    def convolves(self) -> bool:
        """Whether its inputs are images for a convolution."""
        return self.backbone is not None or len(self.shape_in) > 1

    def to(self, *args: Any, **kwargs: Any) -> "FloatNetwork":
        """Move or convert all numbers in place; the scaling moves along."""
        super().to(*args, **kwargs)
        self.scaling = self.scaling.to(next(self.parameters()).device)
        return self

    def on_backbone(self, backbone: Backbone, scaling: Scaling) -> "FloatNetwork":
        """Put layers that took the features of a backbone on the backbone itself."""
        whole = copy(self)
        whole._modules = dict(self._modules)  # a copy's own, or both would get the backbone
        whole.backbone, whole.scaling, whole.n_features = backbone, scaling, backbone.n_inputs
        return whole


class AtThresholds(nn.Module):
    """A 1-bit activation at each of several thresholds, as ``zeroone.nn.Step`` has them."""

    def __init__(self, activation: nn.Module, thresholds: tuple[float, ...]) -> None:
        super().__init__()
        self.activation, self.thresholds = activation, thresholds

    def forward(self, u: Tensor) -> Tensor:
        """Return all units at the first threshold, then at the second, and so on."""
        if isinstance(self.activation, OneBit):
            return self.activation.forward(u, self.thresholds)
        return torch.cat([self.activation(u - value) for value in self.thresholds], dim=1)


def _activate(activation: Kind, layer: Layer) -> nn.Module:
    """Make the activation of a hidden layer."""
    made, thresholds = activation(layer.operator.n_out), thresholds_of(layer.bits)
    return made if thresholds == (0.0,) else AtThresholds(made, thresholds)


def _draw(units: int, columns: int, bias: bool) -> Tensor:
    """Draw weights as torch does; convolutions draw the same numbers as dense layers."""
    return as_matrix(nn.Linear(columns, units, bias))
