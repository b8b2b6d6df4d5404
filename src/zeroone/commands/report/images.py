"""Arrays as PNG images inside the page."""

import base64
import io

import numpy as np
from numpy.typing import NDArray

from zeroone.nn.operators import Shape
from zeroone.utils.checks import InputError

Pixels = NDArray[np.uint8]


def data_uri(pixels: Pixels, size: int) -> str:
    """Encode pixels (height, width, 3) as a data URI, enlarged to at most ``size`` pixels high."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError("a page with images needs pillow: pip install 'zeroone[pages]'") from None
    factor = max(1, size // pixels.shape[0])
    buffer = io.BytesIO()
    large = pixels.repeat(factor, axis=0).repeat(factor, axis=1)
    Image.fromarray(large).save(buffer, format="PNG", optimize=True)
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
