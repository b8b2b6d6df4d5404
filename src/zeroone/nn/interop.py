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

from torch import Tensor, nn

from zeroone.nn.backbones import Backbone
from zeroone.nn.chain import Chain
from zeroone.nn.heads import make_head
from zeroone.nn.labels import ClassLabel
from zeroone.nn.layers import thresholds_of
from zeroone.nn.network import Network, check_network
from zeroone.nn.operators import Shape
from zeroone.nn.sequence import read_layers
from zeroone.nn.step import Step
from zeroone.utils.checks import InputError


class ZeroOneModule(Chain):
    """A 0/1 network: flattened raw samples in, the scores of the classes out."""

    backbone: Backbone | None
    centre: Tensor
    scale: Tensor

    def __init__(self, network: Network) -> None:
        super().__init__(
            network.layers,
            lambda layer: Step(thresholds=thresholds_of(layer.bits)),
            backbone=deepcopy(network.backbone),
        )
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
            several thresholds makes as many units of each. ``nn.MaxPool2d`` may also come after a
            ``Step``, and so may ``nn.AvgPool2d`` or ``nn.AdaptiveAvgPool2d`` below a linear layer,
            which then shares its weights within each window.
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
    return Network(read_layers(flat, image), make_head(head), classes=classes)
