"""A device that is not there: tensors that say they are on another one, and compute all the same.

It refuses what a GPU refuses: operations between its tensors and those of the CPU (numbers and
indices aside), and numpy.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")  # whose name needs no driver
CROSSING = ("aten::copy_", "aten::_to_copy")
INDEXING = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


class Far(torch.Tensor):
    """A tensor on that device, which holds one on the CPU."""

    @staticmethod
    def __new__(cls, near):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            near.shape,
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=DEVICE,
        )

    def __init__(self, near):
        self.near = near

    def __repr__(self):
        return f"Far({self.near})"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


class Elsewhere(TorchDispatchMode):
    """While it is entered there is such a device."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


def run(function, args, kwargs):
    given, _ = tree_flatten((args, kwargs))
    tensors = [T for T in given if isinstance(T, torch.Tensor)]
    far = [T for T in tensors if isinstance(T, Far)]
    name = function._schema.name
    if name in INDEXING and isinstance(args[0], Far):  # by numbers that may be here
        tensors = [T for T in (args[0], *args[2:]) if isinstance(T, torch.Tensor)]
    near = [T for T in tensors if not isinstance(T, Far) and (T.ndim or name == "aten::cat")]
    if far and near and name not in CROSSING:
        raise RuntimeError(f"{name} of tensors on two devices")
    if kwargs.get("generator") is not None and (far or _is_far(kwargs.get("device"))):
        raise RuntimeError(f"{name} on one device by a generator on another")
    goes = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
    if goes is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    out = function(*tree_map(_near, args), **tree_map(_near, kwargs))
    if not function._schema.returns:
        return None
    if name.endswith("_") or "out" in kwargs:
        return args[0] if "out" not in kwargs else kwargs["out"]
    is_far = _is_far(goes) if goes is not None else bool(far)
    return tree_map(lambda T: Far(T) if isinstance(T, torch.Tensor) else T, out) if is_far else out


def _is_far(device):
    return device is not None and torch.device(device) == DEVICE


def _near(x):
    return x.near if isinstance(x, Far) else x
