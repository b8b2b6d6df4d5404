"""Arrays as PNG images inside the page."""

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from zeroone.nn.operators import Shape

Pixels = NDArray[np.uint8]


def data_uri(pixels: Pixels, enlarge: int = 1) -> str:
    """Pixels (height, width, 3) as the address of an image that is part of the page."""
    large = pixels.repeat(enlarge, axis=0).repeat(enlarge, axis=1)
    buffer = io.BytesIO()
    Image.fromarray(large).save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def as_pixels(sample: NDArray[np.floating], shape: Shape, high: float) -> Pixels:
    """A flat sample whose values go from 0 to ``high`` as an image: grey, or in colour."""
    channels, height, width = shape
    bright = np.asarray(sample, dtype=np.float64).reshape(channels, height, width) / high
    image: Pixels = np.clip(255 * bright, 0, 255).astype(np.uint8).transpose(1, 2, 0)
    return image.repeat(3, axis=2) if channels == 1 else image[..., :3]


def signed_pixels(weights: NDArray[np.floating]) -> Pixels:
    """A matrix as colours: red above 0, blue below, white at 0, by the largest size in it."""
    share = weights / max(float(np.abs(weights).max()), 1e-30)
    red, blue = np.array([178, 24, 43]), np.array([33, 102, 172])
    end = np.where(share[..., None] > 0, red, blue)
    mixed: Pixels = (255 + np.abs(share)[..., None] * (end - 255.0)).round().astype(np.uint8)
    return mixed
