"""Export to one HTML page: draw or drop an image and see bits and classes live.

``network.js`` runs the network, ``demo.js`` is the page around it, ``demo.html`` and ``demo.css``
give it its look. The page makes no network requests.
"""

import base64
import json
import math
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.deploy.exporters import register_exporter, template
from zeroone.deploy.integer_form import IntegerNetwork, Map, Stage
from zeroone.nn.operators import Shape
from zeroone.utils.checks import InputError
from zeroone.utils.storage import replacing
from zeroone.version import __version__


@register_exporter("html", suffix=".html", takes_image=True)
def write_html(network: IntegerNetwork, path: Path, image: Shape | None = None) -> list[str]:
    """Write a page to draw on.

    ``image`` holds the channels, height and width of a sample, or () if samples are no images; None
    guesses.
    """
    shape = guess_image(network) if image is None else image
    fits = len(shape) == 3 and shape[0] in (1, 3) and min(shape) > 0
    if shape and (not fits or math.prod(shape) != network.n_features):
        raise InputError(
            f"{network.n_features} inputs are no image of shape {shape}, grey or in three colours."
        )
    files = resources.files(__package__)
    texts = {
        name: (files / file).read_text(encoding="utf-8")
        for name, file in (("style", "demo.css"), ("engine", "network.js"), ("page", "demo.js"))
    }
    # JSON without "<" cannot close the script element that holds it.
    texts["data"] = json.dumps(describe(network) | {"image": shape}).replace("<", "\\u003c")
    page = template("demo.html").render(
        texts, image=shape, n_bytes=network.n_bytes, version=__version__
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return [f"{path}: open it in a browser, {path.stat().st_size:,} bytes"]


def describe(network: IntegerNetwork) -> dict[str, Any]:
    """Return what ``readNetwork`` in network.js takes."""
    inputs = network.inputs
    return {
        "nFeatures": inputs.n_features,
        "names": network.feature_names,
        "taken": _encode(inputs.taken, np.int32),
        "low": _encode(inputs.low, np.float32),
        "rate": _encode(inputs.rate, np.float32),
        "shift": inputs.shift,
        "classes": [str(label) for label in network.classes],
        "unit": network.unit,
        "head": network.head.kind,
        "smoothing": network.head.smoothing,
        "stages": [_describe_stage(stage) for stage in network.stages],
    }


def guess_image(network: IntegerNetwork) -> Shape:
    """Guess the shape of a sample: that of the first convolution, or a square, grey or in colour.

    Other samples have the shape (), and so have inputs with names.
    """
    first = network.stages[0].main
    if first.kernel and network.inputs.taken is None:
        return first.shape_in if first.shape_in[0] in (1, 3) else ()
    if network.feature_names is not None:
        return ()
    for channels in (1, 3):
        side = math.isqrt(network.n_features // channels)
        if side >= 4 and channels * side**2 == network.n_features:
            return (channels, side, side)
    return ()


def _describe_stage(stage: Stage) -> dict[str, Any]:
    return vars(stage) | {
        "main": _describe_map(stage.main),
        "thresholds": _encode(stage.ordered_limits, np.int32),
        "out": stage.shape_out,
        "sums": stage.main.shape_out,
    }


def _describe_map(linear: Map) -> dict[str, Any]:
    weights = _encode(linear.weights.T, np.int8)
    return vars(linear) | {"weights": weights, "units": linear.n_out}


def _encode(values: NDArray[Any] | None, dtype: type) -> str | None:
    """Encode numbers of this type, lowest byte first, as text."""
    if values is None:
        return None
    little = values.astype(np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode("ascii")
