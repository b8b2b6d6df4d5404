"""The weights of a network's first layer: as images, or as the size of each input's weights."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.commands.report.images import data_uri, signed_pixels
from zeroone.nn.network import Network
from zeroone.nn.operators import Conv2d

UNITS, INPUTS = 48, 20  # how many the page shows


def weight_images(network: Network, shape: tuple[int, ...] | None) -> list[str]:
    """Draw the weights of the first layer's units, those with the largest weights above first.

    ``shape`` is that of a sample; without images there is nothing to draw.
    """
    first = _first_weights(network, shape)
    if first is None:
        return []
    order = np.arange(len(first))
    if network.body is None and len(network.operators) > 1:
        order = np.argsort(-_outgoing(network)[: len(first)], kind="stable")
    # Channels stand side by side: signed weights cannot be mixed into one colour.
    strips = [np.concatenate(list(first[unit]), axis=1) for unit in order[:UNITS]]
    return [data_uri(signed_pixels(strip), 56) for strip in strips]


def _first_weights(network: Network, shape: tuple[int, ...] | None) -> NDArray[Any] | None:
    """The weights of each unit, shaped (channels, height, width)."""
    if network.body is not None:
        kernels = next((p for p in network.body.layers.parameters() if p.dim() == 4), None)
        return None if kernels is None else kernels.detach().numpy()
    operator = network.operators[0]
    if isinstance(operator, Conv2d):
        shape = (operator.n_in, operator.kernel, operator.kernel)
    elif shape is None or len(shape) != 3 or operator.n_in != math.prod(shape):
        return None
    return np.asarray(operator.linear.detach().numpy().reshape(-1, *shape))


def _outgoing(network: Network) -> NDArray[Any]:
    """The norm of each first-layer unit's weights in the second layer."""
    norms = network.operators[1].linear.detach().square().sum(dim=0)
    return np.asarray(norms.reshape(network.operators[0].n_out, -1).sum(dim=1).sqrt().numpy())


def strongest_inputs(network: Network) -> list[tuple[str, float]]:
    """List the inputs with the largest weights, as shares of the largest; none for images."""
    operator = network.operators[0]
    if network.body is not None or isinstance(operator, Conv2d):
        return []
    norms = operator.linear.detach().norm(dim=0).numpy()
    largest = max(float(norms.max()), 1e-30)
    names = network.feature_names or [f"input {k}" for k in range(len(norms))]
    order = np.argsort(-norms, kind="stable")[:INPUTS]
    return [(names[k], float(norms[k]) / largest) for k in order]
