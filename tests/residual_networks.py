"""Small networks with shortcuts, and samples for them."""

import torch

from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network

IMAGE = (2, 6, 6)
HIDDEN = (
    "conv3x3:4:pad1",
    "conv3x3:5:stride2:pad1:skip2",  # from the inputs, with stride 2
    "conv3x3:6:pad1:skip3:max3",  # from the inputs again, around two layers
    "7:skip2",  # from images of (5, 3, 3)
)


DIGITS = (
    "conv3x3:8:pad1",
    "conv3x3:8:pad1",
    "conv3x3:8:pad1:skip2",
    "conv3x3:16:stride2:pad1",
    "conv3x3:16:pad1:skip2",
)


def build(hidden=HIDDEN, shape=IMAGE, n_classes=3, head=None, **options):
    plans = [LayerPlan.parse(layer) for layer in hidden]
    return Network.build(shape, plans, n_classes, head or SoftmaxCE(), **options)


def batch(normal, n=12, shape=IMAGE):
    return normal(n, *shape).flatten(1), torch.arange(n) % 3
