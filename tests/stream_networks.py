"""Small networks with a stream, and samples for them."""

import torch

from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network

IMAGE = (2, 6, 6)
HIDDEN = (
    "conv3x3:4:pad1",
    "conv3x3:4:pad1:stream:max2",
    "conv3x3:8:pad1:stream:max3",  # twice as many units
    7,
    "14:stream",
)


DIGITS = (
    "conv3x3:8:pad1",
    "conv3x3:8:pad1:stream",
    "conv3x3:8:pad1:stream:max2",
    "conv3x3:16:pad1:stream",
    "conv3x3:16:pad1:stream",
)


def build(hidden=HIDDEN, shape=IMAGE, n_classes=3, head=None, **options):
    plans = [LayerPlan.parse(layer) for layer in hidden]
    return Network.build(shape, plans, n_classes, head or SoftmaxCE(), **options)


def batch(normal, n=12, shape=IMAGE):
    return normal(n, *shape).flatten(1), torch.arange(n) % 3
