"""Run an integer network: in compiled kernels where they can, else in ONNX Runtime or numpy.

ONNX Runtime is an extra (``pip install 'zeroone-nn[onnx]'``). The scores are the same to the bit.
"""

import os
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.deploy.build import are_there
from zeroone.deploy.exporters.onnx import make_model
from zeroone.deploy.integer_form import Engine, IntegerNetwork, Sums
from zeroone.deploy.kernel import KernelNetwork, can_run
from zeroone.nn.labels import ClassLabel
from zeroone.nn.operators import Shape
from zeroone.nn.targets import Targets
from zeroone.utils.checks import InputError, need_extra

MANY = 1000  # samples that are worth the second or two of a compiler


class IntegerModel:
    """A model with the interface of ``Network`` that computes in integers only.

    Args:
        network: The integer form; ``network.scores`` gives the same scores to the bit.
        threads: The number of threads; None takes as many as torch.

    """

    def __init__(self, network: IntegerNetwork, threads: int | None = None) -> None:
        if not hasattr(network, "stages"):
            name = type(network).__name__
            raise InputError(f"an IntegerModel is made of what quantise returns, not of {name}.")
        self.network, self.threads = network, threads
        self._seen = 0  # samples so far that kernels could have run
        self._row = (network.n_features,)

    def __repr__(self) -> str:
        return self.network.summary(type(self).__name__)

    @property
    def classes(self) -> list[ClassLabel]:
        """The class labels, in the order of the scores."""
        return self.network.classes

    @property
    def targets(self) -> Targets:
        """What the network answers."""
        return self.network.head.targets

    @property
    def n_features(self) -> int:
        """The number of features in a raw sample."""
        return self.network.n_features

    @property
    def feature_names(self) -> list[str] | None:
        """The names of the inputs, if known."""
        return self.network.feature_names

    @property
    def shape_in(self) -> Shape:
        """The shape of a raw sample: channels, height, width for images, else ``(n_features,)``."""
        shape = self.network.stages[0].main.shape_in
        return shape if len(shape) == 3 else (self.n_features,)

    @property
    def takes_bytes(self) -> bool:
        """Whether raw inputs are bytes, such as pixels."""
        return self.network.inputs.are_bytes

    @cached_property
    def session(self) -> Any:
        """The session of ONNX Runtime, opened on first use."""
        return open_session(make_model(self.network).SerializeToString(), self.threads)

    @cached_property
    def has_session(self) -> bool:
        """Whether ONNX Runtime is installed."""
        try:
            return self.session is not None
        except InputError:
            return False

    @cached_property
    def native(self) -> KernelNetwork | None:
        """The network in kernels, prepared on first use; None if they cannot run it."""
        return KernelNetwork.of(self.network, self.threads or torch.get_num_threads())

    @cached_property
    def _labels(self) -> NDArray[Any]:
        return np.asarray(self.classes)

    def scores(self, X: ArrayLike | Tensor) -> Sums:
        """Compute the int32 scores of raw samples."""
        raw = self.network.check(X)
        return self.network.in_parts(self.engine(raw), raw)

    def engine(self, raw: NDArray[Any]) -> Engine:
        """Choose the fastest engine for these checked samples."""
        if self._has_kernels(len(raw)):
            return self.native.scores  # type: ignore[union-attr]
        return self._by_session if self.has_session else self.network.score_checked

    def _has_kernels(self, samples: int) -> bool:
        """Whether kernels take these samples; only many are worth a compilation."""
        if "native" not in self.__dict__:
            self._seen += samples
            if self._seen <= MANY and not (can_run(self.network) and are_there()):
                return False
        return self.native is not None

    def _by_session(self, raw: NDArray[Any]) -> Sums:
        scores: Sums = self.session.run(["scores"], {"inputs": raw})[0]
        return scores

    def predict(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """Return the label of each sample's leading class, the first one if several lead."""
        if self._is_short(X):
            if len(X) == 1:
                at = self.native.leading_one(X.tobytes())  # type: ignore[union-attr]
                return self._labels[at : at + 1].copy()
            return self._labels[self.native.leading(X)]  # type: ignore[union-attr]
        labels: NDArray[Any] = self._labels[self.scores(X).argmax(axis=1)]
        return labels

    def predict_into(self, X: ArrayLike | Tensor, out: NDArray[np.int32]) -> None:
        """Write the place of each sample's leading class in ``classes`` to an array.

        One sample of bytes takes the least time that Python allows, and no new array.

        Args:
            X: The samples.
            out: An int32 array with an entry for each sample.

        """
        shape = np.shape(X)[:1]
        if type(out) is not np.ndarray or out.dtype != np.int32 or out.shape != shape:
            raise InputError(f"predict_into needs an int32 array of shape {shape} to write to.")
        if not self._is_short(X):
            out[:] = self.scores(X).argmax(axis=1)
        elif len(X) == 1:
            out[0] = self.native.leading_one(X.tobytes())  # type: ignore[union-attr]
        elif out.flags.carray:
            self.native.leading(X, out)  # type: ignore[union-attr]
        else:
            out[:] = self.native.leading(X)  # type: ignore[union-attr]

    def _is_short(self, X: Any) -> TypeGuard[NDArray[np.uint8]]:
        """Whether samples can take the short way: bytes in rows, for kernels that are there."""
        return (
            type(X) is np.ndarray
            and X.dtype == np.uint8
            and X.shape[1:] == self._row
            and len(X) > 0
            and self.network.inputs.low is None
            and self._has_kernels(len(X))
        )

    def predict_proba(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """Return the class probabilities of each sample."""
        logits = self.scores(X).astype(np.float32) * np.float32(self.network.unit)
        shares: NDArray[Any] = self.network.head.probabilities(torch.from_numpy(logits)).numpy()
        return shares

    def save(self, path: str | Path) -> Path:
        """Write the model to a file that ``zeroone.load`` reads."""
        from zeroone.deploy.files import write_integers

        return write_integers(self.network, Path(path))

    def export(self, to: str, path: str | Path, image: Shape | None = None) -> list[str]:
        """Write the model in another format: see ``Network.export``."""
        return self.network.export(to, path, image)

    def __getstate__(self) -> dict[str, Any]:
        """Leave sessions and kernels out: a copy opens its own."""
        kept = ("network", "threads", "_row")
        return {name: getattr(self, name) for name in kept} | {"_seen": 0}


def open_session(model: str | bytes, threads: int | None = None, *, spin: bool = True) -> Any:
    """Open a session of ONNX Runtime on the CPU.

    Args:
        model: The content of an ONNX file, or its path.
        threads: The number of threads; None takes as many as torch.
        spin: Whether threads spin for a while as they wait for the next call.

    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # works only before the first import
    onnxruntime: Any = need_extra("onnx", "onnxruntime")
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or torch.get_num_threads()
    options.log_severity_level = 3
    if not spin:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
