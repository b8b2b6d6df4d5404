"""Run an integer network: in compiled kernels where they can, else in ONNX Runtime or numpy.

ONNX Runtime is an extra (``pip install 'zeroone-nn[onnx]'``). The scores are the same to the bit.
"""

import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.deploy.exporters.onnx import make_model
from zeroone.deploy.integer_form import Engine, IntegerNetwork, Sums
from zeroone.deploy.kernel import KernelNetwork
from zeroone.nn.labels import ClassLabel
from zeroone.nn.operators import Shape
from zeroone.nn.targets import Targets
from zeroone.utils.checks import InputError, need_extra


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
        with suppress(InputError):
            return self.session is not None
        return False

    @cached_property
    def native(self) -> KernelNetwork | None:
        """The network in kernels, prepared on first use; None if they cannot run it."""
        return KernelNetwork.of(self.network, self.threads or torch.get_num_threads())

    @cached_property
    def engine(self) -> Engine:
        """The fastest function from checked samples to scores."""
        if self.native is not None:
            return self.native.scores
        return self._by_session if self.has_session else self.network.score_checked

    @cached_property
    def _labels(self) -> NDArray[Any]:
        return np.asarray(self.classes)

    def _by_session(self, raw: NDArray[Any]) -> Sums:
        scores: Sums = self.session.run(["scores"], {"inputs": raw})[0]
        return scores

    def scores(self, X: ArrayLike | Tensor) -> Sums:
        """Compute the int32 scores of raw samples."""
        return self.network.in_parts(self.engine, self.network.check(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each sample's leading class, the first one if several lead."""
        native = self._native_for(X)
        if native is None:
            at: Any = self.scores(X).argmax(axis=1)
        elif len(X) > 1:
            at = native.leading(X)
        else:
            one = native.leading_one(X.tobytes())
            return self._labels[one : one + 1].copy()  # quicker than by an array of places
        labels: NDArray[Any] = self._labels[at]
        return labels

    def predict_into(self, X: Any, out: NDArray[np.int32]) -> None:
        """Write the place of each sample's leading class in ``classes`` to an array.

        One sample of bytes takes the least time that Python allows, and no new array.

        Args:
            X: The samples.
            out: An int32 array with an entry for each sample.

        """
        shape = np.shape(X)[:1]
        if type(out) is not np.ndarray or out.dtype != np.int32 or out.shape != shape:
            raise InputError(f"predict_into needs an int32 array of shape {shape} to write to.")
        native = self._native_for(X)
        if native is None:
            out[:] = self.scores(X).argmax(axis=1)
        elif len(X) == 1:
            out[0] = native.leading_one(X.tobytes())
        elif out.flags.carray:
            native.leading(X, out)
        else:
            out[:] = native.leading(X)

    def _native_for(self, X: Any) -> KernelNetwork | None:
        """Return the kernels if samples can take the short way to them: bytes in rows."""
        short = (
            type(X) is np.ndarray
            and X.dtype == np.uint8
            and X.shape[1:] == self._row
            and len(X) > 0
            and self.network.inputs.low is None
        )
        return self.native if short else None

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

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave sessions and kernels out: a copy opens its own."""
        return type(self), (self.network, self.threads)


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
