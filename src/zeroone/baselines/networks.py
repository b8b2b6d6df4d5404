"""A network of any activation: a body or none, then the layers that a 0/1 network has as well."""

import math

import torch
from torch import Tensor, nn

from zeroone.baselines.activations import ACTIVATIONS
from zeroone.baselines.settings import RivalSettings
from zeroone.bodies import Body, make_body
from zeroone.counts import walk
from zeroone.layers import Layer, LayerPlan, check_image
from zeroone.operators import Conv2d, Dense, Operator, Shape
from zeroone.pooling import make_pool
from zeroone.scaling import Scaling

POOLS = {"none": nn.Identity, "max": nn.MaxPool2d, "average": nn.AvgPool2d}


class Stage(nn.Module):
    """A linear map, a pooling or none, normalisation or none, and an activation or none."""

    def __init__(self, plan: LayerPlan, shape_in: Shape, norm: bool, activation: nn.Module) -> None:
        super().__init__()
        self.plan, self.shape_in = plan, shape_in
        if plan.kernel:
            self.linear: nn.Conv2d | nn.Linear = nn.Conv2d(
                shape_in[0], plan.units, plan.kernel, plan.stride, plan.padding
            )
        else:
            self.linear = nn.Linear(math.prod(shape_in), plan.units)
        self.pool = POOLS[plan.pool](plan.window)
        make_norm = nn.BatchNorm2d if plan.kernel else nn.BatchNorm1d
        self.norm = make_norm(plan.units) if norm else nn.Identity()
        self.activation = activation

    def forward(self, V: Tensor) -> Tensor:  # noqa: D102
        images = V.reshape(len(V), *self.shape_in) if self.plan.kernel else V.flatten(1)
        pooled = self.pool(self.linear(images))
        out: Tensor = self.activation(self.norm(pooled))
        return out

    @property
    def operator(self) -> Operator:
        """A copy of the linear map, as it is counted."""
        weight, bias = self.linear.weight, self.linear.bias
        assert bias is not None
        matrix = torch.cat([weight.flatten(1), bias[:, None]], dim=1).detach()
        if not self.plan.kernel:
            return Dense(matrix, self.shape_in, bias=True)
        p = self.plan
        return Conv2d(
            matrix, self.shape_in, True, kernel=p.kernel, stride=p.stride, padding=p.padding
        )

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
        settings: RivalSettings,
        scaling: Scaling,
        image: Shape | None = None,
    ) -> None:
        super().__init__()
        self.scaling = scaling
        n_in, *hidden, n_classes = widths
        self.n_features = int(n_in)
        plans = [LayerPlan.parse(width) for width in hidden]
        activation = ACTIVATIONS[settings.activation]
        self.body: nn.Module | None = None
        bits = False
        shape: Shape = (self.n_features,)
        if settings.body is not None:
            in_body = activation if settings.body_activation == "own" else ACTIVATIONS["relu"]
            self.body = make_body(settings.body, image, in_body)
            walked = walk(self.body, self.n_features)
            shape, bits = (walked.n_features,), walked.bits
        elif plans and plans[0].kernel:
            shape = check_image(image)
        stages: list[Stage] = []
        for plan in plans:
            stages.append(Stage(plan, shape, settings.batch_norm, activation(plan.units)))
            shape = stages[-1].shape_out
        stages.append(Stage(LayerPlan(int(n_classes)), shape, False, nn.Identity()))
        self.stages = nn.Sequential(*stages)
        self.takes_bits = [bits, *(activation.one_bit for _ in plans)]

    @property
    def convolves(self) -> bool:
        """Whether its inputs are images for a convolution."""
        return self.body is not None or len(self.operators[0].shape_in) > 1

    def on_body(self, body: Body, scaling: Scaling) -> "FloatNetwork":
        """Put the layers, which took a body's features, on the body itself: it takes images now."""
        self.body, self.scaling, self.n_features = body, scaling, body.n_inputs
        return self

    def forward(self, V: Tensor) -> Tensor:
        """The scores of scaled inputs."""
        if self.body is not None:
            V = self.body(V)
        scores: Tensor = self.stages(V)
        return scores

    @property
    def operators(self) -> list[Operator]:
        """Copies of the layers above the body, as they are counted."""
        return [stage.operator for stage in self.stages if isinstance(stage, Stage)]
