"""Images inside the page: samples, and the weights of the first layer."""

import base64
import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.nn.network import Network
from zeroone.nn.operators import Shape
from zeroone.utils.checks import need_extra

UNITS = 48  # whose weights the page shows
Pixels = NDArray[np.uint8]


def data_uri(pixels: Pixels) -> str:
    """Encode pixels (height, width, 3) as the data URI of a PNG image."""
    Image = need_extra("pages", "PIL.Image")
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def as_pixels(sample: NDArray[np.floating], shape: Shape, high: float) -> Pixels:
    """Turn a flat sample with values from 0 to ``high`` into a grey or colour image."""
    bright = np.asarray(sample, dtype=np.float64).reshape(shape) / high
    image: Pixels = np.clip(255 * bright, 0, 255).astype(np.uint8).transpose(1, 2, 0)
    return image.repeat(3, axis=2) if shape[0] == 1 else image[..., :3]


def signed_pixels(weights: NDArray[np.floating]) -> Pixels:
    """Colour a matrix: red above 0, blue below, white at 0, relative to its largest magnitude."""
    share = weights / max(float(np.abs(weights).max()), 1e-30)
    red, blue = np.array([178, 24, 43]), np.array([33, 102, 172])
    end = np.where(share[..., None] > 0, red, blue)
    mixed: Pixels = (255 + np.abs(share)[..., None] * (end - 255.0)).round().astype(np.uint8)
    return mixed


def weight_images(network: Network, shape: Shape | None) -> list[str]:
    """Draw the weights of the first layer's units if its inputs, of this shape, are images.

    Units with the largest weights in the next layer come first; filters of a backbone keep their
    order.
    """
    first = _first_weights(network, shape)
    if first is None:
        return []
    order = np.arange(len(first))
    if network.backbone is None and len(network.operators) > 1:
        squares = network.operators[1].linear.detach().square().sum(dim=0).numpy()
        outgoing = np.sqrt(squares.reshape(network.operators[0].n_out, -1).sum(axis=1))
        order = np.argsort(-outgoing[: len(first)], kind="stable")
    # Channels stand side by side: signed weights cannot be mixed into one colour.
    strips = [np.concatenate(list(first[unit]), axis=1) for unit in order[:UNITS]]
    return [data_uri(signed_pixels(strip)) for strip in strips]


def _first_weights(network: Network, shape: Shape | None) -> NDArray[Any] | None:
    """The weights of each unit, shaped (channels, height, width)."""
    if network.backbone is not None:
        kernels = next((p for p in network.backbone.layers.parameters() if p.dim() == 4), None)
        return None if kernels is None else kernels.detach().numpy()
    operator = network.operators[0]
    if operator.kernel:
        shape = (operator.n_in, operator.kernel, operator.kernel)
    elif shape is None or len(shape) != 3 or operator.n_in != math.prod(shape):
        return None
    return np.asarray(operator.linear.detach().numpy().reshape(-1, *shape))
