"""0/1 networks as torch modules, and back.

    module = to_torch(network)              # raw inputs in, scores out; torch.export takes it
    whole = nn.Sequential(backbone, to_torch(clf.network_))     # on top of any torch model
    network = from_torch(module)            # its tensors may have been loaded or changed
    network = from_torch(nn.Sequential(nn.Linear(4, 9), Step(), nn.Linear(9, 3)))

A module keeps ``Network``'s arithmetic: the same scores up to the rounding of a sum.
"""

import math
from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from zeroone.nn.functional import channels_last
from zeroone.nn.heads import make_head
from zeroone.nn.layers import Layer, naming, recent
from zeroone.nn.network import ClassLabel, Network
from zeroone.nn.operators import Conv2d, Dense, Operator, Shape
from zeroone.nn.pooling import AvgPool, MaxPool, NoPool, Pool, make_pool
from zeroone.nn.scaling import Scaling
from zeroone.nn.step import Step
from zeroone.utils.checks import InputError


class ZeroOneLayer(nn.Module):
    """A linear map, perhaps a shortcut beside it, and a pooling."""

    def __init__(self, layer: Layer, convolution: type[nn.Conv2d]) -> None:
        super().__init__()
        self.linear = as_module(layer.operator, convolution)
        self.shortcut = None
        if layer.shortcut is not None:
            self.shortcut = as_module(layer.shortcut, convolution)
        self.skip = layer.skip
        self.shape_in = layer.operator.shape_in
        self.shape_skipped = None if layer.shortcut is None else layer.shortcut.shape_in
        self.pool = _pool_module(layer.pool)

    def forward(self, V: Sequence[Tensor]) -> Tensor:
        """The pooled pre-activations, of the activations so far."""
        U: Tensor = self.linear(_fitting(self.linear, V[-1], self.shape_in))
        if self.shortcut is not None and self.shape_skipped is not None:
            U = U + self.shortcut(_fitting(self.shortcut, V[-self.skip], self.shape_skipped))
        pooled: Tensor = self.pool(U)
        return pooled

    def as_layer(self) -> Layer:
        """A copy as a network has it."""
        shortcut = None
        if self.shortcut is not None and self.shape_skipped is not None:
            shortcut = as_operator(self.shortcut, _fed(self.shortcut, self.shape_skipped))
        operator = as_operator(self.linear, _fed(self.linear, self.shape_in))
        return Layer(operator, _as_pool(self.pool), shortcut, self.skip)


class ZeroOneLayers(nn.Module):
    """The layers of a 0/1 network: scaled inputs (or a body's features) in, scores out."""

    def __init__(self, network: Network, convolution: type[nn.Conv2d] = nn.Conv2d) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ZeroOneLayer(layer, convolution) for layer in network.layers)
        self.steps = nn.ModuleList(Step() for _ in network.layers[:-1])

    def forward(self, V0: Tensor) -> Tensor:
        """The scores."""
        V = recent(V0, (layer.skip for layer in self._layers))
        for layer, step in zip(self._layers, self.steps, strict=False):  # the last has none
            V.append(step(layer(V)))
        scores: Tensor = self._layers[-1](V)
        return scores

    @property
    def activations(self) -> list[Step]:
        """The steps, the first one first."""
        return [step for step in self.steps if isinstance(step, Step)]

    @property
    def _layers(self) -> list[ZeroOneLayer]:
        return [layer for layer in self.layers if isinstance(layer, ZeroOneLayer)]

    def as_layers(self) -> list[Layer]:
        """Copies as a network has them."""
        layers = []
        for i, layer in enumerate(self._layers):
            with naming(f"layer {i + 1}"):
                layers.append(layer.as_layer())
        return layers


class ZeroOneModule(ZeroOneLayers):
    """A 0/1 network: flattened raw samples in, the scores of the classes out."""

    centre: Tensor
    scale: Tensor
    taken: Tensor | None

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.register_buffer("centre", network.scaling.centre.clone())
        self.register_buffer("scale", network.scaling.scale.clone())
        self.register_buffer("taken", network.scaling.taken)
        self.ranges = network.scaling.inputs
        self.body = deepcopy(network.body)
        self.head, self.classes = network.head, list(network.classes)
        self.feature_names = network.feature_names

    def forward(self, X: Tensor) -> Tensor:
        """The scores; samples may keep the axes of images."""
        V0 = Scaling(self.centre, self.scale, self.taken).apply(X.flatten(1))
        return super().forward(V0 if self.body is None else self.body(V0))

    def as_network(self) -> Network:
        """A network with copies of the tensors."""
        scaling = Scaling(self.centre.clone(), self.scale.clone(), self.taken, self.ranges)
        network = Network(self.as_layers(), self.head, scaling, self.classes, deepcopy(self.body))
        network.feature_names = self.feature_names
        return network


def to_torch(network: Network) -> ZeroOneModule:
    """A module with copies of the network's weights."""
    return ZeroOneModule(network).eval().requires_grad_(requires_grad=False)


def from_torch(
    module: nn.Module,
    *,
    image: Shape | None = None,
    classes: list[ClassLabel] | None = None,
    head: str = "softmax",
) -> Network:
    """A network with copies of a module's weights: one of ``to_torch``, or an ``nn.Sequential``.

    The latter holds ``nn.Linear``, ``nn.Conv2d``, ``nn.MaxPool2d``, ``nn.AvgPool2d``,
    ``nn.Flatten`` and, after every layer but the last, ``Step``; convolutions need the ``image``'s
    shape (channels, height, width). Inputs are then taken as they are.
    """
    if isinstance(module, ZeroOneModule):
        return module.as_network()
    if not isinstance(module, nn.Sequential):
        raise InputError("only modules of to_torch and nn.Sequential become 0/1 networks.")
    return Network(_read(_chain(module), image), make_head(head), classes=classes)


def _chain(module: nn.Sequential) -> list[nn.Module]:
    """The modules of a chain, those of chains within it among them."""
    return [
        inner
        for part in module
        for inner in (_chain(part) if isinstance(part, nn.Sequential) else [part])
    ]


def _read(modules: list[nn.Module], image: Shape | None) -> list[Layer]:
    """The layers that a chain of modules stands for."""
    layers: list[Layer] = []
    closed = True  # whether a step has ended the last layer
    for i, module in enumerate(modules):
        where = f"module {i} ({type(module).__name__})"
        if isinstance(module, nn.Linear | nn.Conv2d):
            if not closed:
                raise InputError(f"{where} follows a layer without a Step between them.")
            shape = layers[-1].shape_out if layers else image
            layers.append(Layer(_read_linear(module, shape, where)))
            closed = False
        elif isinstance(module, nn.MaxPool2d | nn.AvgPool2d) and layers and not closed:
            if not isinstance(layers[-1].pool, NoPool):
                raise InputError(f"{where} is a second pooling of the same layer.")
            with naming(where):
                layers[-1].pool = _as_pool(module)
                _ = layers[-1].shape_out  # refuses windows that do not fit
        elif isinstance(module, Step) and layers and not closed:
            closed = True
        elif not isinstance(module, nn.Flatten | nn.Identity):
            raise InputError(f"{where} has no place in a 0/1 network.")
    if not layers or closed or isinstance(layers[-1].operator, Conv2d):
        raise InputError("a 0/1 network ends with a linear layer, its scores.")
    return layers


def _read_linear(module: nn.Linear | nn.Conv2d, shape: Shape | None, where: str) -> Operator:
    """A linear map of samples of this shape, or of any if it is not known."""
    if isinstance(module, nn.Conv2d):
        if shape is None:
            raise InputError(f"{where} needs the shape of the images, image=...")
        with naming(where):
            return as_operator(module, shape)
    found = module.in_features if shape is None else math.prod(shape)
    if found != module.in_features:
        raise InputError(f"{where} takes {module.in_features} numbers a sample, not {found}.")
    return as_operator(module, shape or (found,))


def as_module(
    operator: Operator, convolution: type[nn.Conv2d] = nn.Conv2d
) -> nn.Linear | nn.Conv2d:
    """A copy of an operator in torch's terms."""
    with torch.device("meta"):
        linear: nn.Linear | nn.Conv2d
        if isinstance(operator, Conv2d):
            linear = convolution(
                operator.n_in,
                operator.n_out,
                operator.kernel,
                operator.stride,
                operator.padding,
                bias=operator.bias,
            )
        else:
            linear = nn.Linear(operator.n_inputs, operator.n_out, bias=operator.bias)
    shape = linear.weight.shape
    linear.weight = nn.Parameter(operator.linear.detach().clone().reshape(shape))
    if operator.offset is not None:
        linear.bias = nn.Parameter(operator.offset.detach().clone())
    return linear


def as_operator(linear: nn.Conv2d | nn.Linear, shape_in: Shape) -> Operator:
    """A copy of a linear map of torch."""
    bias = linear.bias is not None
    matrix = linear.weight.detach().flatten(1).clone()
    if linear.bias is not None:
        matrix = torch.cat([matrix, linear.bias.detach()[:, None]], dim=1)
    if isinstance(linear, nn.Linear):
        return Dense(matrix, shape_in, bias)
    kernel, stride = _side(linear.kernel_size), _side(linear.stride)
    padding = _side(linear.padding) if not isinstance(linear.padding, str) else None
    if linear.padding == "valid":
        padding = 0
    elif linear.padding == "same" and kernel is not None and kernel % 2:
        padding = kernel // 2
    plain = linear.groups == 1 and _side(linear.dilation) == 1 and linear.padding_mode == "zeros"
    if not plain or kernel is None or stride is None or padding is None:
        raise InputError(
            "convolutions of 0/1 networks are square, padded alike on all sides, with no groups or "
            "dilation."
        )
    return Conv2d(matrix, shape_in, bias, kernel=kernel, stride=stride, padding=padding)


def _side(size: int | tuple[int, ...]) -> int | None:
    """The one number of a square, or None."""
    if isinstance(size, int):
        return size
    return int(size[0]) if len(set(size)) == 1 else None


def _fitting(linear: nn.Module, V: Tensor, shape: Shape) -> Tensor:
    """Activations as a linear map takes them: images, or what is flat."""
    if isinstance(linear, nn.Linear):
        return V.flatten(1)
    return channels_last(V.reshape(-1, *_fed(linear, shape)))


def _fed(linear: nn.Module, shape: Shape) -> Shape:
    """The shape of a sample with as many units as feed the layer now: some may have left."""
    if isinstance(linear, nn.Conv2d):
        return (linear.in_channels, *shape[1:])
    assert isinstance(linear, nn.Linear)
    return (linear.in_features // math.prod(shape[1:]), *shape[1:])


def _pool_module(pool: Pool) -> nn.Module:
    if isinstance(pool, NoPool):
        return nn.Identity()
    return nn.MaxPool2d(pool.size) if isinstance(pool, MaxPool) else nn.AvgPool2d(pool.size)


def _as_pool(module: nn.Module) -> Pool:
    if isinstance(module, nn.Identity):
        return NoPool()
    assert isinstance(module, nn.MaxPool2d | nn.AvgPool2d)
    size = _side(module.kernel_size)
    plain = _side(module.stride) == size and _side(module.padding) == 0 and not module.ceil_mode
    plain = plain and _side(getattr(module, "dilation", 1)) == 1
    if not plain or size is None or getattr(module, "divisor_override", None):
        raise InputError("poolings of 0/1 networks have square windows, side by side.")
    kind = MaxPool.kind if isinstance(module, nn.MaxPool2d) else AvgPool.kind
    return make_pool(kind, size)
