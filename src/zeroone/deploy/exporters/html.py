"""The integer form as one HTML file: draw or drop something, and see bits and classes live.

``network.js`` runs the network, ``demo.js`` is the page around it, ``demo.html`` and ``demo.css``
what it looks like. The page asks nobody for anything.
"""

import base64
import json
import math
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from zeroone.deploy.exporters.c import in_order
from zeroone.deploy.integer_form import IntegerNetwork, Map, Stage
from zeroone.nn.operators import Shape
from zeroone.utils.checks import InputError
from zeroone.utils.storage import replacing
from zeroone.version import __version__


def write_html(network: IntegerNetwork, path: Path, image: Shape | None = None) -> Path:
    """Write the page.

    ``image``: channels, height, width of a sample; None guesses them, () is for samples that are no
    images.
    """
    shape = guess_image(network) if image is None else image
    fits = len(shape) == 3 and shape[0] in (1, 3) and min(shape) > 0
    if shape and (not fits or math.prod(shape) != network.n_features):
        raise InputError(
            f"{network.n_features} inputs are no image of shape {shape}, grey or in three colours."
        )
    files = resources.files(__package__)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string((files / "demo.html").read_text(encoding="utf-8"))
    texts = {
        name: Markup((files / file).read_text(encoding="utf-8"))
        for name, file in (("style", "demo.css"), ("engine", "network.js"), ("page", "demo.js"))
    }
    data = describe(network) | {"image": shape}
    page = template.render(
        texts, data=_as_script(data), image=shape, n_bytes=network.n_bytes, version=__version__
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def describe(network: IntegerNetwork) -> dict[str, Any]:
    """What ``readNetwork`` takes."""
    inputs = network.inputs
    return {
        "nFeatures": inputs.n_features,
        "names": network.feature_names,
        "taken": None if inputs.taken is None else _encode(inputs.taken.astype(np.int32)),
        "low": None if inputs.low is None else _encode(inputs.low),
        "rate": None if inputs.rate is None else _encode(inputs.rate),
        "classes": [str(label) for label in network.classes],
        "unit": network.unit,
        "head": network.head.kind,
        "stages": [_stage(stage) for stage in network.stages],
    }


def guess_image(network: IntegerNetwork) -> Shape:
    """The shape of a sample: the first convolution's, or a square, grey or in colour; or ().

    Inputs with names of their own are no pixels.
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


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        "main": _map(stage.main),
        "shortcut": None if stage.shortcut is None else _map(stage.shortcut),
        "skip": stage.skip,
        "pool": stage.pool,
        "window": stage.window,
        "out": stage.shape_out,
        "limits": _encode(in_order(stage)),
    }


def _map(linear: Map) -> dict[str, Any]:
    return {
        "weights": _encode(np.ascontiguousarray(linear.weights.T)),
        "units": linear.n_out,
        "shape": linear.shape_in,
        "kernel": linear.kernel,
        "stride": linear.stride,
        "padding": linear.padding,
    }


def _encode(values: NDArray[Any]) -> str:
    little = values.astype(values.dtype.newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode("ascii")


def _as_script(data: dict[str, Any]) -> Markup:
    """JSON that cannot end the script it stands in."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
