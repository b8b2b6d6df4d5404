"""Model files: networks of integers are written and read here, both kinds are loaded."""

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zeroone.deploy.integer_form import LARGEST_LAYER, Inputs, IntegerNetwork, Map, Stage
from zeroone.deploy.runtime import IntegerModel
from zeroone.nn.heads import make_head
from zeroone.nn.layers import MOST_SIDE, naming
from zeroone.nn.network import Network, are_labels, is_text
from zeroone.nn.network import load as load_network
from zeroone.nn.pooling import POOLS
from zeroone.utils.checks import InputError, count, one_of
from zeroone.utils.storage import INTEGERS, kind_of, read_tensors, write_tensors
from zeroone.version import __version__

FORMAT_VERSION = 1
GEOMETRY = ("kernel", "stride", "padding")
LEAST_UNIT = 1e-30


def load(path: str | Path) -> Network | IntegerModel:
    """Read a model: a network, or what ``zeroone compress`` made of one.

    The latter runs its integers (see ``IntegerModel``). Anything else is refused in one sentence.
    """
    if kind_of(Path(path)) == INTEGERS:
        return IntegerModel(read_integers(Path(path)))
    return load_network(path)


def write_integers(network: IntegerNetwork, path: Path) -> Path:
    """Write a network of integers as a safetensors file, all or nothing."""
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
    arrays: dict[str, NDArray[Any] | None] = {
        "inputs.taken": None if inputs.taken is None else inputs.taken.astype(np.int32),
        "inputs.low": inputs.low,
        "inputs.rate": inputs.rate,
    }
    for i, stage in enumerate(network.stages):
        arrays[f"stages.{i}.weights"] = pack(stage.main.weights)
        arrays[f"stages.{i}.thresholds"] = stage.thresholds
        if stage.shortcut is not None:
            arrays[f"stages.{i}.shortcut"] = pack(stage.shortcut.weights)
    tensors = {
        name: torch.from_numpy(np.ascontiguousarray(array))
        for name, array in arrays.items()
        if array is not None
    }
    return write_tensors(path, INTEGERS, header, tensors)


def read_integers(path: Path) -> IntegerNetwork:
    """Read what ``write_integers`` wrote, with suspicion."""
    header, tensors = read_tensors(path, INTEGERS, FORMAT_VERSION)
    try:
        described = header["stages"]
        if not are_labels(header["classes"]):
            raise InputError("class labels are not plain and distinct.")
        stages = []
        for i in range(len(described)):
            with naming(f"layer {i + 1}"):
                stages.append(_stage(described[i], tensors, i))
        return IntegerNetwork(
            _inputs(header, tensors),
            stages,
            header["classes"],
            make_head(header["head"]["kind"], header["head"].get("margin", 0.0)),
            _unit(header["unit"]),
            _names(header),
        )
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        if isinstance(error, InputError):
            raise InputError(f"{path} is not a usable model of integers: {error}") from None
        raise InputError(f"{path} is not a complete model of integers ({error!r}).") from None


def _describe(stage: Stage) -> dict[str, Any]:
    content = _describe_map(stage.main) | {"pool": stage.pool, "window": stage.window}
    if stage.shortcut is not None:
        content["shortcut"] = _describe_map(stage.shortcut) | {"skip": stage.skip}
    return content


def _describe_map(linear: Map) -> dict[str, Any]:
    geometry = {name: getattr(linear, name) for name in GEOMETRY} if linear.kernel else {}
    size = {"out": linear.n_out, "bits": bits_of(linear.weights)}
    return {"in": list(linear.shape_in), **size, **geometry}


def bits_of(weights: NDArray[np.int8]) -> int:
    """How many bits a weight needs: 1 if all are -1 or 1, 2 if some are 0, else 8."""
    if np.abs(weights).max(initial=0) > 1:
        return 8
    return 1 if weights.all() else 2


def pack(weights: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Bytes, deflated; of few values in as few bits as they need.

    First which weights are above 0, then (if some are 0) which are below.
    """
    bits = bits_of(weights)
    raw = weights.view(np.uint8).ravel()
    if bits < 8:
        planes = [weights > 0, weights < 0][:bits]
        raw = np.packbits(np.concatenate([plane.ravel() for plane in planes]))
    return np.frombuffer(bytearray(zlib.compress(raw.tobytes())), np.uint8)


def unpack(packed: NDArray[np.uint8], bits: int, shape: tuple[int, int]) -> NDArray[np.int8]:
    """The weights that were packed; of a file that lies, no more is made than it should hold."""
    size = math.prod(shape)
    misfit = f"weights in {bits!r} bits do not fill a layer of shape {shape}."
    if bits not in (1, 2, 8) or packed.ndim != 1 or size > LARGEST_LAYER:
        raise InputError(misfit)
    length = -(-bits * size // 8)
    try:
        raw = zlib.decompressobj().decompress(packed.tobytes(), length + 1)
    except zlib.error:
        raise InputError("weights cannot be inflated.") from None
    if len(raw) != length:
        raise InputError(misfit)
    if bits == 8:
        return np.frombuffer(bytearray(raw), np.int8).reshape(shape)
    flat = np.unpackbits(np.frombuffer(raw, np.uint8), count=bits * size).astype(np.int8)
    values = flat[:size] - flat[size:] if bits == 2 else 2 * flat - 1
    return np.asarray(values, dtype=np.int8).reshape(shape)


def _stage(described: dict[str, Any], tensors: dict[str, Tensor], i: int) -> Stage:
    main = _map(described, tensors[f"stages.{i}.weights"])
    thresholds = _array(tensors[f"stages.{i}.thresholds"], torch.int32)
    pool, window = described["pool"], count("a pooling window", described["window"])
    one_of("pooling", pool, POOLS)
    if "shortcut" not in described:
        return Stage(main, thresholds, pool, window)
    shortcut = described["shortcut"]
    around = _map(shortcut, tensors[f"stages.{i}.shortcut"])
    return Stage(main, thresholds, pool, window, around, count("a skip", shortcut["skip"], least=2))


def _map(described: dict[str, Any], tensor: Tensor) -> Map:
    shape = tuple(count("a side", side) for side in described["in"])
    if len(shape) not in (1, 3):
        raise InputError(f"samples of shape {shape} are neither rows nor images.")
    geometry = {
        name: count(name, described[name], least=0 if name == "padding" else 1, most=MOST_SIDE)
        for name in GEOMETRY
        if name in described
    }
    columns = shape[0] * geometry["kernel"] ** 2 if "kernel" in geometry else math.prod(shape)
    packed, n_out = _array(tensor, torch.uint8), count("the number of units", described["out"])
    return Map(unpack(packed, described["bits"], (n_out, columns)), shape, **geometry)


def _inputs(header: dict[str, Any], tensors: dict[str, Tensor]) -> Inputs:
    n = count("the number of inputs", header["n_features"])
    taken = None
    if "inputs.taken" in tensors:
        taken = _array(tensors["inputs.taken"], torch.int32).astype(np.int64)
        rising = taken.ndim == 1 and len(taken) and bool((np.diff(taken) > 0).all())
        if not rising or taken[0] < 0 or taken[-1] >= n:
            raise InputError("the inputs that are taken are not in order.")
    low = rate = None
    if "inputs.low" in tensors:
        low = _array(tensors["inputs.low"], torch.float32)
        rate = _array(tensors["inputs.rate"], torch.float32)
        expected = (n if taken is None else len(taken),)
        finite = bool(np.isfinite(low).all() and np.isfinite(rate).all() and (rate > 0).all())
        if low.shape != expected or rate.shape != expected or not finite:
            raise InputError("the range of the inputs is not given for each of them.")
    return Inputs(n, taken, low, rate)


def _array(tensor: Tensor, dtype: torch.dtype) -> NDArray[Any]:
    if tensor.dtype != dtype:
        raise InputError(f"numbers of {tensor.dtype} where {dtype} was expected.")
    array: NDArray[Any] = tensor.numpy()
    return array


def _unit(value: Any) -> float:
    if type(value) is not float or not LEAST_UNIT <= value <= 1 / LEAST_UNIT:
        raise InputError(f"the unit of scores is {value!r}.")
    return value


def _names(header: dict[str, Any]) -> list[str] | None:
    names = header.get("features")
    if names is None:
        return None
    plain = all(isinstance(name, str) and is_text(name) for name in names)
    if not plain or (len(set(names)), len(names)) != (header["n_features"], header["n_features"]):
        raise InputError("the names of inputs are not as many, or not distinct.")
    return list(names)
