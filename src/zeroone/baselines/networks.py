"""A network of any activation: a body or none, then the layers that a 0/1 network has as well."""

import math
from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor, nn

from zeroone.analysis.counts import walk
from zeroone.baselines.activations import ACTIVATIONS
from zeroone.baselines.settings import BaselineSettings
from zeroone.nn.backbones import Backbone, make_backbone
from zeroone.nn.convolution import Convolution
from zeroone.nn.functional import channels_last
from zeroone.nn.interop import as_operator
from zeroone.nn.layers import Layer, LayerPlan, Link, check_image, check_skips, naming, recent
from zeroone.nn.operators import Operator, Shape
from zeroone.nn.pooling import make_pool
from zeroone.nn.scaling import Scaling

POOLS = {"none": nn.Identity, "max": nn.MaxPool2d, "average": nn.AvgPool2d}


def make_linear(plan: LayerPlan, shape_in: Shape, *, bias: bool = True) -> nn.Conv2d | nn.Linear:
    """The linear map of a plan, with torch's own start."""
    if not plan.kernel:
        return nn.Linear(math.prod(shape_in), plan.units, bias)
    plan.check(shape_in)
    return Convolution(shape_in[0], plan.units, plan.kernel, plan.stride, plan.padding, bias=bias)


class Stage(nn.Module):
    """A linear map, a shortcut, a pooling, normalisation and an activation, or none of the latter.

    ``shapes``: of all activations so far, those right below last; ``below``: the plans so far.
    """

    def __init__(
        self,
        plan: LayerPlan,
        shapes: Sequence[Shape],
        below: Sequence[LayerPlan],
        norm: bool,
        activation: nn.Module,
    ) -> None:
        super().__init__()
        self.plan, self.shape_in, self.skipped = plan, shapes[-1], plan.skipped(shapes, below)
        self.linear = make_linear(plan, self.shape_in)
        self.shortcut: nn.Conv2d | nn.Linear | None = None
        if self.skipped is not None:
            way = plan.shortcut(self.skipped, self.operator.shape_out)
            self.shortcut = make_linear(way, self.skipped.shape, bias=False)
        self.pool = POOLS[plan.pool](plan.window)
        make_norm = nn.BatchNorm2d if plan.kernel else nn.BatchNorm1d
        self.norm = make_norm(plan.units) if norm else nn.Identity()
        self.activation = activation

    def forward(self, V: Sequence[Tensor]) -> Tensor:
        """The activations, of those so far."""
        U = self.linear(self._rows(V[-1], self.shape_in))
        if self.shortcut is not None and self.skipped is not None:
            U = U + self.shortcut(self._rows(V[-self.plan.skip], self.skipped.shape))
        out: Tensor = self.activation(self.norm(self.pool(U)))
        return out

    def _rows(self, V: Tensor, shape: Shape) -> Tensor:
        """As the linear maps take them: images, or what is flat."""
        if not self.plan.kernel:
            return V.flatten(1)
        return channels_last(V.reshape(len(V), *shape))

    @property
    def operator(self) -> Operator:
        """A copy of the linear map."""
        return as_operator(self.linear, self.shape_in)

    @property
    def shape_out(self) -> Shape:
        """Of a sample."""
        return Layer(self.operator, make_pool(self.plan.pool, self.plan.window)).shape_out


class FloatNetwork(nn.Module):
    """A body or none, then layers, each hidden one with its activation.

    ``widths``: inputs, hidden layers (numbers of units, or as ``LayerPlan`` reads them), classes.
    ``image``: the shape of a sample, for convolutions.
    """

    def __init__(
        self,
        widths: list[int | str],
        settings: BaselineSettings,
        scaling: Scaling,
        image: Shape | None = None,
    ) -> None:
        super().__init__()
        self.scaling = scaling
        n_in, *hidden, n_classes = widths
        self.n_features = int(n_in)
        self.plans = plans = [LayerPlan.parse(width) for width in hidden]
        activation = ACTIVATIONS[settings.activation]
        self.body: nn.Module | None = None
        bits = False
        shape: Shape = (self.n_features,)
        if settings.body is not None:
            in_body = activation if settings.body_activation == "own" else ACTIVATIONS["relu"]
            self.body = make_backbone(settings.body, image, in_body)
            walked = walk(self.body, self.n_features)
            shape, bits = (walked.n_features,), walked.bits
        elif plans and plans[0].kernel:
            shape = check_image(image)
        check_skips(plans)
        stages: list[Stage] = []
        shapes = [shape]
        for i, plan in enumerate(plans):
            with naming(f"layer {i + 1} ({plan})"):
                unit = activation(plan.units)
                stages.append(Stage(plan, shapes, plans[:i], settings.batch_norm, unit))
                shapes.append(stages[-1].shape_out)
        stages.append(Stage(LayerPlan(int(n_classes)), shapes, plans, False, nn.Identity()))
        self.stages = nn.ModuleList(stages)
        self.takes_bits = [bits, *(activation.one_bit for _ in plans)]
        channels_last(self)

    @property
    def convolves(self) -> bool:
        """Whether its inputs are images for a convolution."""
        return self.body is not None or len(self.operators[0].shape_in) > 1

    def move(self, device: torch.device) -> "FloatNetwork":
        """Move all numbers there, in place."""
        self.scaling = self.scaling.to(device)
        return self.to(device)

    def on_body(self, body: Backbone, scaling: Scaling) -> "FloatNetwork":
        """The network of these layers, which took a body's features, on the body itself."""
        whole = copy(self)
        whole._modules = dict(self._modules)  # a copy's own, or the body would be put into both
        whole.body, whole.scaling, whole.n_features = body, scaling, body.n_inputs
        return whole

    def forward(self, V: Tensor) -> Tensor:
        """The scores of scaled inputs."""
        if self.body is not None:
            V = self.body(V)
        activations = recent(V, (plan.skip for plan in self.plans))
        for stage in self.stages:
            activations.append(stage(activations))
        return activations[-1]

    @property
    def operators(self) -> list[Operator]:
        """Copies of the layers above the body, as they are counted."""
        return [stage.operator for stage in self.stages if isinstance(stage, Stage)]

    @property
    def shortcuts(self) -> list[Link]:
        """Copies of the shortcuts, in their places."""
        return [
            Link(as_operator(stage.shortcut, stage.skipped.shape), i + 1 - stage.plan.skip, i)
            for i, stage in enumerate(self.stages)
            if isinstance(stage, Stage) and stage.shortcut and stage.skipped
        ]
