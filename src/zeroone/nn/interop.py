"""0/1 networks as torch modules, and back.

    module = to_torch(network)              # raw inputs in, scores out; torch.export takes it
    whole = nn.Sequential(backbone, to_torch(clf.network_))     # on top of any torch model
    module = to_torch(network, trainable=True)      # for zeroone.optim.BCD, in any loop
    network = from_torch(module)            # its tensors may have been loaded or changed
    network = from_torch(nn.Sequential(nn.Linear(4, 9), Step(), nn.Linear(9, 3)))

A module keeps ``Network``'s arithmetic: the same scores up to the rounding of a sum.
"""

from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn

from zeroone.nn.backbones import Backbone
from zeroone.nn.chain import Chain, as_matrix, normalised, with_bias
from zeroone.nn.heads import make_head
from zeroone.nn.labels import ClassLabel
from zeroone.nn.layers import (
    Layer,
    LayerPlan,
    build_layers,
    check_image,
    naming,
    thresholds_of,
)
from zeroone.nn.network import Network, check_network
from zeroone.nn.operators import Shape
from zeroone.nn.pooling import AvgPool, MaxPool, NoPool
from zeroone.nn.step import Step
from zeroone.utils.checks import InputError


def step_of(layer: Layer) -> Step:
    """Return the activation of a hidden layer."""
    return Step(thresholds=thresholds_of(layer.bits))


class ZeroOneModule(Chain):
    """A 0/1 network: flattened raw samples in, the scores of the classes out."""

    backbone: Backbone | None
    centre: Tensor
    scale: Tensor

    def __init__(self, network: Network) -> None:
        backbone = deepcopy(network.backbone)
        super().__init__(network.layers, step_of, backbone=backbone)
        self.register_buffer("centre", network.scaling.centre.clone())
        self.register_buffer("scale", network.scaling.scale.clone())
        self.scaling = network.scaling  # but for the centre and the scale
        self.head, self.classes = network.head, list(network.classes)
        self.feature_names = network.feature_names

    def forward(self, X: Tensor) -> Tensor:
        """Return the scores; samples may keep the axes of images."""
        scaling = replace(self.scaling, centre=self.centre, scale=self.scale)
        return super().forward(scaling.apply(X.flatten(1)))

    def extra_repr(self) -> str:
        """Show the sizes and the head."""
        inputs, classes = len(self.centre), len(self.classes)
        return f"inputs={inputs}, classes={classes}, head={self.head.kind}"

    def as_network(self) -> Network:
        """Return a network with copies of the tensors."""
        scaling = replace(self.scaling, centre=self.centre.clone(), scale=self.scale.clone())
        network = Network(
            self.as_layers(), self.head, scaling, self.classes, deepcopy(self.backbone)
        )
        network.feature_names = self.feature_names
        return network


def to_torch(network: Network, *, trainable: bool = False) -> ZeroOneModule:
    """Return a module with copies of the network's weights.

    Args:
        network: the network.
        trainable: whether the layers' parameters require gradients, for ``zeroone.optim.BCD``; pass
            it ``balance=False`` to keep the thresholds. A backbone always stays as it is.

    """
    module = ZeroOneModule(check_network(network)).train(trainable)
    module.layers.requires_grad_(trainable)
    if trainable:
        module.scaling = replace(module.scaling, constant=None)  # they may vary in other data
    return module


def from_torch(
    module: nn.Module,
    *,
    image: Shape | None = None,
    classes: list[ClassLabel] | None = None,
    head: str = "softmax",
) -> Network:
    """Return a network with copies of a module's weights.

    Args:
        module: a module of ``to_torch``, or an ``nn.Sequential`` of ``nn.Linear``, ``nn.Conv2d``,
            ``nn.MaxPool2d``, ``nn.AvgPool2d``, ``nn.BatchNorm1d`` or ``nn.BatchNorm2d``,
            ``nn.Flatten`` and, after every layer but the last, ``Step``. The network of a sequence
            takes its inputs unscaled. Thresholds absorb batch normalisation; a ``Step`` with
            several thresholds makes as many units of each.
        image: the shape (channels, height, width) of a sample, which convolutions need.
        classes: the class labels of a sequence; 0, 1, ... by default.
        head: the head of a sequence.

    Raises:
        InputError: if the module is no 0/1 network; it names the part that does not fit.

    """
    if isinstance(module, ZeroOneModule):
        return module.as_network()
    if not isinstance(module, nn.Sequential):
        raise InputError("only modules of to_torch and nn.Sequential become 0/1 networks.")
    parts = [part for _, part in module.named_modules(remove_duplicate=False)]
    flat = [part for part in parts if not isinstance(part, nn.Sequential)]
    return Network(_read(flat, image), make_head(head), classes=classes)


def _read(modules: list[nn.Module], image: Shape | None) -> list[Layer]:
    """Return the layers that a list of modules stands for."""
    plans: list[LayerPlan] = []
    linear: list[nn.Linear | nn.Conv2d] = []
    weights: list[Tensor] = []  # of each layer, as an operator holds them
    closed = True  # whether a step has ended the last layer
    for i, module in enumerate(modules):
        with naming(f"module {i} ({type(module).__name__})"):
            if isinstance(module, nn.Linear | nn.Conv2d):
                if not closed:
                    raise InputError("it follows a layer without a Step between them.")
                plans.append(_plan(module))
                linear.append(module)
                weights.append(as_matrix(module))
                closed = False
            elif isinstance(module, nn.MaxPool2d | nn.AvgPool2d) and not closed:
                plans[-1] = _pooled(plans[-1], module)
            elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and not closed:
                if plans[-1].pool == MaxPool.kind and _turns(module):
                    raise InputError("a negative weight makes the largest entry the smallest.")
                weights[-1] = normalised(with_bias(weights[-1], linear[-1]), module)
            elif isinstance(module, Step) and not closed:
                if module.thresholds != (0.0,):
                    weights[-1] = _repeated(with_bias(weights[-1], linear[-1]), module.thresholds)
                    plans[-1] = replace(plans[-1], units=len(weights[-1]))
                closed = True
            elif not isinstance(module, nn.Flatten | nn.Identity):
                raise InputError("it has no place in a 0/1 network.")
    if not plans or closed or plans[-1].kernel:
        raise InputError("a 0/1 network ends with a linear layer, its scores.")
    first = linear[0]
    if image is None and isinstance(first, nn.Linear):
        image = (first.in_features,)
    drawn = iter(weights)
    return build_layers(plans, image or check_image(image), lambda *_: next(drawn))


def _turns(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> bool:
    return norm.weight is not None and bool((norm.weight < 0).any())


def _repeated(W: Tensor, thresholds: tuple[float, ...]) -> Tensor:
    """Return the weights of all units for each threshold, which the biases absorb."""
    each = W.repeat(len(thresholds), 1)
    each[:, -1] -= torch.tensor(thresholds).to(W).repeat_interleave(len(W))
    return each


def _plan(module: nn.Linear | nn.Conv2d) -> LayerPlan:
    """Return the plan of a layer, without a pooling."""
    if isinstance(module, nn.Linear):
        return LayerPlan(module.out_features)
    kernel, stride = _side(module.kernel_size), _side(module.stride)
    padding = None if isinstance(module.padding, str) else _side(module.padding)
    if module.padding == "valid":
        padding = 0
    elif module.padding == "same" and kernel is not None and kernel % 2:
        padding = kernel // 2
    plain = module.groups == 1 and _side(module.dilation) == 1 and module.padding_mode == "zeros"
    if not plain or kernel is None or stride is None or padding is None:
        raise InputError(
            "convolutions of 0/1 networks are square, padded alike on all sides, with no groups or "
            "dilation."
        )
    return LayerPlan(module.out_channels, kernel, stride, padding)


def _pooled(plan: LayerPlan, module: nn.MaxPool2d | nn.AvgPool2d) -> LayerPlan:
    """Add torch's pooling to a plan, or refuse windows that 0/1 networks do not have."""
    if plan.pool != NoPool.kind:
        raise InputError("it is a second pooling of the same layer.")
    size = _side(module.kernel_size)
    plain = _side(module.stride) == size and _side(module.padding) == 0 and not module.ceil_mode
    plain = plain and _side(getattr(module, "dilation", 1)) == 1
    if not plain or size is None or getattr(module, "divisor_override", None):
        raise InputError("poolings of 0/1 networks have square windows, side by side.")
    kind = MaxPool.kind if isinstance(module, nn.MaxPool2d) else AvgPool.kind
    return replace(plan, pool=kind, window=size)


def _side(size: int | tuple[int, ...]) -> int | None:
    """Return the side of a square, or None if it is none."""
    if isinstance(size, int):
        return size
    return int(size[0]) if len(set(size)) == 1 else None
