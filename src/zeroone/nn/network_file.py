"""Read networks from the files that ``Network.save`` writes; refuse anything else."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zeroone.nn.backbones import Backbone
from zeroone.nn.heads import Head, make_head
from zeroone.nn.labels import is_text
from zeroone.nn.layers import Layer, LayerPlan, build_layers
from zeroone.nn.network import BATCH_NUMBERS, FORMAT_VERSION, Network
from zeroone.nn.scaling import InputRange, Scaling
from zeroone.utils.checks import InputError, count
from zeroone.utils.storage import read_model


def load(path: str | Path) -> Network:
    """Read a network that ``Network.save`` wrote; refuse anything else in one sentence."""
    header, tensors = read_model(Path(path), FORMAT_VERSION)
    try:
        layers = _layers(header, tensors)
        head = head_of(header)
        scaling = _build_scaling(header, tensors)
        _check_loaded(path, tensors, scaling, header["classes"])
        backbone = None
        if "body" in header:
            own = {k.removeprefix("body."): T for k, T in tensors.items() if k.startswith("body.")}
            backbone = Backbone.rebuild(header["body"], own)
        network = Network(layers, head, scaling, header["classes"], backbone)
        if "features" in header:
            network.name_features(header["features"])
        return network
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is not a complete zeroone model ({error!r}).") from None


def head_of(header: dict[str, Any]) -> Head:
    """Build the head that a model file describes."""
    about = header["head"]
    return make_head(about["kind"], about.get("margin", 0.0), about.get("smoothing", 0.0))


def _build_scaling(header: dict[str, Any], tensors: dict[str, Tensor]) -> Scaling:
    centre, ranges = tensors["scaling.centre"], None
    chosen = {}
    for key in ("taken", "constant"):
        if key in header:
            numbers = [count("the number of an input", k, least=0) for k in header[key]]
            chosen[key] = torch.tensor(numbers, dtype=torch.long)
    if header.get("bytes"):
        low = torch.zeros_like(centre)
        ranges = InputRange(low, low + 255, are_bytes=True)
    elif "scaling.low" in tensors:
        ranges = InputRange(tensors["scaling.low"], tensors["scaling.high"])
    bits = count("input_bits", header.get("input_bits", 8), most=8)
    return Scaling(centre, tensors["scaling.scale"], inputs=ranges, bits=bits, **chosen)


def _check_loaded(
    path: str | Path, tensors: dict[str, Tensor], scaling: Scaling, classes: Any
) -> None:
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) != 1 or not dtypes <= {torch.float32, torch.float64}:
        raise InputError(f"{path} mixes number formats, or uses another than float32 or float64.")
    if scaling.centre.ndim != 1 or not scaling.fits(len(scaling.centre)):
        raise InputError(f"{path} has a scaling whose scales are not positive, or not as many.")
    if not are_labels(classes):
        raise InputError(f"{path} has class labels that are not plain and distinct.")


def are_labels(classes: Any) -> bool:
    """Return whether class labels from a file are numbers or valid text, and distinct."""
    plain = isinstance(classes, list) and all(isinstance(c, int | float | str) for c in classes)
    return plain and len(set(classes)) == len(classes) and all(map(is_text, classes))


def _layers(header: dict[str, Any], tensors: dict[str, Tensor]) -> list[Layer]:
    """Build the layers that a header describes as users write them."""
    plans = [LayerPlan.parse(text) for text in header["layers"]]
    if plans[-1] != LayerPlan(plans[-1].units):
        raise InputError("the last layer is not one of scores: it has to be dense.")
    shape = tuple(count("a side of a sample", side) for side in header["samples"])
    weights = iter([tensors[f"layers.{i}.weight"] for i in range(len(plans))])
    layers = build_layers(plans, shape, lambda *_: next(weights))
    for i, layer in enumerate(layers):
        if math.prod(layer.operator.shape_out) > BATCH_NUMBERS:
            raise InputError(f"layer {i + 1} is too large: {layer.operator.shape_out}.")
        layer.thresholds = tensors.get(f"layers.{i}.thresholds")
        if layer.thresholds is not None:
            _check_thresholds(layer, f"layer {i + 1}")
    return layers


def _check_thresholds(layer: Layer, name: str) -> None:
    """Require thresholds that do not fall, as many as the layer has bits."""
    thresholds, wanted = layer.thresholds, (layer.bits, layer.operator.n_out)
    assert thresholds is not None
    if thresholds.shape != wanted or not layer.bits:
        raise InputError(f"{name} has thresholds of another shape than {wanted}.")
    if not bool((thresholds.diff(dim=0) >= 0).all()):
        raise InputError(f"{name} has thresholds that fall.")
