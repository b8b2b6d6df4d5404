"""Write and read the files of integer networks; load models of either kind."""

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zeroone.deploy import zoo
from zeroone.deploy.borders import distinct
from zeroone.deploy.integer_form import (
    MOST_THRESHOLDS,
    MOST_WEIGHTS,
    Bytes,
    Inputs,
    IntegerNetwork,
    Map,
    Stage,
    Sums,
    Weights,
    weight_bits,
)
from zeroone.deploy.runtime import IntegerModel
from zeroone.nn.layers import MOST_SIDE, MOST_UNITS, naming
from zeroone.nn.network import Network
from zeroone.nn.network_file import are_labels, head_of
from zeroone.nn.network_file import load as load_network
from zeroone.nn.operators import fan_in
from zeroone.nn.pooling import POOLS
from zeroone.utils.checks import InputError, count, one_of
from zeroone.utils.storage import INTEGERS, is_folder, kind_of, read_tensors, write_tensors
from zeroone.version import __version__

FORMAT_VERSION = 4  # since units may have several thresholds
GEOMETRY = ("kernel", "stride", "padding")


def load(path: str | Path) -> Network | IntegerModel:
    """Load a model: a network, or what ``zeroone compress`` wrote.

    Args:
        path: The file, the folder of a run, or a model of the zoo, such as "zoo/mnist".

    Raises:
        InputError: The file is damaged, or no model.

    """
    file = model_file(Path(path))
    if kind_of(file) == INTEGERS:
        return IntegerModel(read_integers(file))
    return load_network(file)


def model_file(path: Path) -> Path:
    """Return the file of a model: the path itself, that in a run's folder, or one of the zoo."""
    known = zoo.find(path)
    if known is not None:
        return known
    return path / "model.safetensors" if is_folder(path) else path


def write_integers(network: IntegerNetwork, path: Path) -> Path:
    """Write an integer network to a safetensors file, all or nothing."""
    inputs = network.inputs
    header: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "package": __version__,
        "n_features": inputs.n_features,
        "classes": network.classes,
        "head": network.head.describe(),
        "unit": network.unit,
        "stages": [_describe(stage) for stage in network.stages],
    }
    if network.feature_names is not None:
        header["features"] = network.feature_names
    if inputs.bits < 8:
        header["input_bits"] = inputs.bits
    arrays: dict[str, NDArray[Any]] = {}
    if inputs.taken is not None:
        arrays["inputs.used"] = np.packbits(np.isin(np.arange(inputs.n_features), inputs.taken))
    if inputs.low is not None and inputs.rate is not None:
        arrays |= {"inputs.low": inputs.low, "inputs.rate": inputs.rate}
    for i, stage in enumerate(network.stages):
        arrays[f"stages.{i}.weights"] = pack(stage.main.weights)
        arrays |= {f"stages.{i}.{name}": A for name, A in _distinct(stage.thresholds).items()}
    tensors = {k: torch.from_numpy(np.ascontiguousarray(array)) for k, array in arrays.items()}
    return write_tensors(path, INTEGERS, header, tensors)


def _describe(stage: Stage) -> dict[str, Any]:
    content = _describe_map(stage.main) | {"pool": stage.pool, "window": stage.window}
    if stage.stream:
        content["stream"] = True
    return content


def _describe_map(linear: Map) -> dict[str, Any]:
    geometry = {name: getattr(linear, name) for name in GEOMETRY} if linear.kernel else {}
    size = {"out": linear.n_out, "bits": weight_bits(linear.weights)}
    return {"in": list(linear.shape_in), **size, **geometry}


def _distinct(thresholds: Sums) -> dict[str, NDArray[Any]]:
    """Return thresholds in 16 bits, if they fit; of those by position, one of all equal."""
    stored: dict[str, NDArray[Any]] = {}
    if thresholds.ndim == 3:
        thresholds, stored["rows"], stored["columns"] = distinct(thresholds)
    short = thresholds.astype(np.int16)
    return stored | {"thresholds": short if np.array_equal(short, thresholds) else thresholds}


def _read_thresholds(tensors: dict[str, Tensor], i: int, main: Map, room: int) -> Sums:
    """Restore the thresholds of layer i, of which there are at most ``room``."""
    thresholds = _array(tensors[f"stages.{i}.thresholds"], torch.int32, torch.int16)
    sides = main.shape_out[1:]
    for axis, name in enumerate(("rows", "columns")[: thresholds.ndim - 1], start=1):
        if f"stages.{i}.{name}" not in tensors:
            continue
        which = _array(tensors[f"stages.{i}.{name}"], torch.int32)
        fits = which.ndim == 1 and len(sides) == 2 and len(which) <= sides[axis - 1]
        if not fits or not ((which >= 0) & (which < thresholds.shape[axis])).all():
            raise InputError(f"the {name} of thresholds are not those of an image.")
        if thresholds.size // thresholds.shape[axis] * len(which) > room:
            raise InputError(f"a network of more than {MOST_THRESHOLDS:,} thresholds is too large.")
        thresholds = thresholds.take(which, axis)
    return thresholds.astype(np.int32)


def pack(weights: Weights) -> Bytes:
    """Deflate weights, in as few bits each as they need.

    Weights of 1 or 2 bits become planes of bits: first which weights are above 0, then (if some are
    0) which are below.
    """
    bits = weight_bits(weights)
    raw = weights.view(np.uint8)
    if bits < 8:
        raw = np.packbits(np.stack([weights > 0, weights < 0][:bits]))
    return np.frombuffer(bytearray(zlib.compress(raw.tobytes())), np.uint8)


def unpack(packed: Bytes, bits: int, shape: tuple[int, int], most: int = MOST_WEIGHTS) -> Weights:
    """Restore packed weights; refuse any that do not fill the shape, before they fill memory."""
    size = math.prod(shape)
    if size > most:
        raise InputError(f"a network of more than {MOST_WEIGHTS:,} weights is too large.")
    length = -(-bits * size // 8) if bits in (1, 2, 8) else 0
    try:
        raw = zlib.decompressobj().decompress(packed.tobytes(), length + 1)
    except zlib.error:
        raise InputError("weights cannot be inflated.") from None
    if not length or len(raw) != length:
        raise InputError(f"weights in {bits!r} bits do not fill a layer of shape {shape}.")
    if bits == 8:
        return np.frombuffer(raw, np.int8).copy().reshape(shape)
    values = np.unpackbits(np.frombuffer(raw, np.uint8), count=bits * size).view(np.int8)
    return (values[:size] - values[size:] if bits == 2 else 2 * values - 1).reshape(shape)


def read_integers(path: Path) -> IntegerNetwork:
    """Read what ``write_integers`` wrote; refuse anything else with an ``InputError``."""
    header, tensors = read_tensors(path, INTEGERS, FORMAT_VERSION)
    try:
        stages: list[Stage] = []
        weights, thresholds = MOST_WEIGHTS, MOST_THRESHOLDS  # how many more there may be
        for i in range(len(header["stages"])):
            with naming(f"layer {i + 1}"):
                stages.append(_read_stage(header["stages"][i], tensors, i, weights, thresholds))
            weights -= stages[-1].main.weights.size
            thresholds -= stages[-1].thresholds.size
        inputs, classes, names = _read_inputs(header, tensors), header["classes"], None
        if not are_labels(classes):
            raise InputError("class labels are not plain and distinct.")
        if "features" in header:
            names = header["features"]
            texts = are_labels(names) and all(isinstance(name, str) for name in names)
            if not texts or len(names) != inputs.n_features:
                raise InputError("the names of inputs are not as many, or not distinct.")
        return IntegerNetwork(inputs, stages, classes, head_of(header), header["unit"], names)
    except InputError as error:
        raise InputError(f"{path} is not a usable model of integers: {error}") from None
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is not a complete model of integers ({error!r}).") from None


def _read_stage(
    described: dict[str, Any], tensors: dict[str, Tensor], i: int, most_weights: int, most: int
) -> Stage:
    """Read a layer with at most so many weights, and at most so many thresholds."""
    main = _read_map(described, tensors[f"stages.{i}.weights"], most_weights)
    thresholds = _read_thresholds(tensors, i, main, most)
    pool = one_of("pooling", described["pool"], POOLS)
    window = count("a pooling window", described["window"])
    stream = described.get("stream", False) is True
    return Stage(main, thresholds, pool, window, stream)


def _read_map(described: dict[str, Any], tensor: Tensor, room: int) -> Map:
    shape = tuple(count("a side", side) for side in described["in"])
    if len(shape) not in (1, 3):
        raise InputError(f"samples of shape {shape} are neither rows nor images.")
    geometry = {
        name: count(name, described[name], least=0 if name == "padding" else 1, most=MOST_SIDE)
        for name in GEOMETRY
        if name in described
    }
    columns = fan_in(shape, geometry.get("kernel", 0))
    packed = _array(tensor, torch.uint8)
    n_out = count("the number of units", described["out"], most=MOST_UNITS)
    return Map(unpack(packed, described["bits"], (n_out, columns), room), shape, **geometry)


def _read_inputs(header: dict[str, Any], tensors: dict[str, Tensor]) -> Inputs:
    n = count("the number of inputs", header["n_features"])
    bits = count("input_bits", header.get("input_bits", 8), most=8)
    taken = None
    if "inputs.used" in tensors:
        used = _array(tensors["inputs.used"], torch.uint8)
        if used.shape != (-(-n // 8),) or not used.any():
            raise InputError("which inputs are used is not said of each of them.")
        taken = np.flatnonzero(np.unpackbits(used, count=n))
    if "inputs.low" not in tensors:
        return Inputs(n, taken, bits=bits)
    low = _array(tensors["inputs.low"], torch.float32)
    rate = _array(tensors["inputs.rate"], torch.float32)
    if not low.shape == rate.shape == (n if taken is None else len(taken),):
        raise InputError("the range of the inputs is not given for each of them.")
    return Inputs(n, taken, low, rate, bits)


def _array(tensor: Tensor, *dtypes: torch.dtype) -> NDArray[Any]:
    if tensor.dtype not in dtypes:
        raise InputError(f"numbers of {tensor.dtype} where {dtypes[0]} was expected.")
    array: NDArray[Any] = tensor.numpy()
    return array
