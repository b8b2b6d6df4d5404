"""0/1 networks as torch modules, and back.

    module = to_torch(network)              # raw inputs in, scores out; torch.export takes it
    whole = nn.Sequential(backbone, to_torch(clf.network_))     # on top of any torch model
    module = to_torch(network, trainable=True)      # for zeroone.optim.BCD, in any loop
    network = from_torch(module)            # its tensors may have been loaded or changed
    network = from_torch(nn.Sequential(nn.Linear(4, 9), Step(), nn.Linear(9, 3)))

A module keeps ``Network``'s arithmetic: the same scores up to the rounding of a sum.
"""

import math
from copy import deepcopy

from torch import Tensor, nn

from zeroone.nn.backbones import Backbone
from zeroone.nn.chain import Chain, as_operator, side
from zeroone.nn.heads import make_head
from zeroone.nn.labels import ClassLabel
from zeroone.nn.layers import Layer, naming
from zeroone.nn.network import Network, check_network
from zeroone.nn.operators import Conv2d, Operator, Shape
from zeroone.nn.pooling import AvgPool, MaxPool, NoPool, Pool
from zeroone.nn.scaling import Scaling
from zeroone.nn.step import Step
from zeroone.utils.checks import InputError


class ZeroOneModule(Chain):
    """A 0/1 network: flattened raw samples in, the scores of the classes out."""

    backbone: Backbone | None
    centre: Tensor
    scale: Tensor
    taken: Tensor | None

    def __init__(self, network: Network) -> None:
        super().__init__(network.layers, lambda _units: Step(), backbone=deepcopy(network.backbone))
        self.register_buffer("centre", network.scaling.centre.clone())
        self.register_buffer("scale", network.scaling.scale.clone())
        self.register_buffer("taken", network.scaling.taken)
        self.ranges, self.constant = network.scaling.inputs, network.scaling.constant
        self.head, self.classes = network.head, list(network.classes)
        self.feature_names = network.feature_names

    def forward(self, X: Tensor) -> Tensor:
        """Return the scores; samples may keep the axes of images."""
        scaling = Scaling(self.centre, self.scale, self.taken)
        return super().forward(scaling.apply(X.flatten(1)))

    def extra_repr(self) -> str:
        """Show the sizes and the head."""
        inputs, classes = len(self.centre), len(self.classes)
        return f"inputs={inputs}, classes={classes}, head={self.head.kind}"

    def as_network(self) -> Network:
        """Return a network with copies of the tensors."""
        scaling = Scaling(
            self.centre.clone(), self.scale.clone(), self.taken, self.ranges, self.constant
        )
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
        module.constant = None  # inputs may vary in other data
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
            ``nn.MaxPool2d``, ``nn.AvgPool2d``, ``nn.Flatten`` and, after every layer but the last,
            ``Step``. The network of a sequence takes its inputs unscaled.
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
    return Network(_read(_flat(module), image), make_head(head), classes=classes)


def _flat(module: nn.Sequential) -> list[nn.Module]:
    """Return the modules of a sequence and of the sequences within it."""
    return [
        inner
        for part in module
        for inner in (_flat(part) if isinstance(part, nn.Sequential) else [part])
    ]


def _read(modules: list[nn.Module], image: Shape | None) -> list[Layer]:
    """Return the layers that a list of modules stands for."""
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
    """Return a linear map of samples of this shape, or of any if it is unknown."""
    if isinstance(module, nn.Conv2d):
        if shape is None:
            raise InputError(f"{where} needs the shape of the images, image=...")
        with naming(where):
            return as_operator(module, shape)
    found = module.in_features if shape is None else math.prod(shape)
    if found != module.in_features:
        raise InputError(f"{where} takes {module.in_features} numbers a sample, not {found}.")
    return as_operator(module, shape or (found,))


def _as_pool(module: nn.MaxPool2d | nn.AvgPool2d) -> Pool:
    """Return a pooling in place of torch's, or refuse windows that it does not have."""
    size = side(module.kernel_size)
    plain = side(module.stride) == size and side(module.padding) == 0 and not module.ceil_mode
    plain = plain and side(getattr(module, "dilation", 1)) == 1
    if not plain or size is None or getattr(module, "divisor_override", None):
        raise InputError("poolings of 0/1 networks have square windows, side by side.")
    return MaxPool(size) if isinstance(module, nn.MaxPool2d) else AvgPool(size)
