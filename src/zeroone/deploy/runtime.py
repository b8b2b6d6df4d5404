"""A network of integers that runs: in ONNX Runtime, or where it pays by kernels of our own."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.deploy.build import are_there, kernels
from zeroone.deploy.exporters.onnx import make_model
from zeroone.deploy.integer_form import IntegerNetwork, Sums
from zeroone.deploy.kernel_batch import NativeNetwork, pays
from zeroone.deploy.kernel_single import SingleNetwork, pays_for_one
from zeroone.nn.network import ClassLabel

MANY = 1000  # single samples that are worth a compiler's second


class IntegerModel:
    """Predicts as ``Network`` does, by integers only; the same scores as ``network``'s, to the bit.

    ``threads``: None takes as many as torch.
    """

    def __init__(self, network: IntegerNetwork, threads: int | None = None) -> None:
        self.network, self.threads = network, threads
        self._singles = 0  # samples that came one by one

    @property
    def classes(self) -> list[ClassLabel]:
        """The labels, in the order of the scores."""
        return self.network.classes

    @property
    def n_features(self) -> int:
        """How many inputs a sample has."""
        return self.network.n_features

    @property
    def feature_names(self) -> list[str] | None:
        """What they are called, if it is known."""
        return self.network.feature_names

    @cached_property
    def session(self) -> Any:
        """ONNX Runtime's, made when it is first needed."""
        return open_session(make_model(self.network).SerializeToString(), self.threads)

    @cached_property
    def native(self) -> NativeNetwork | None:
        """Kernels for blocks of samples, built when first needed; None if there are none."""
        return NativeNetwork.of(self.network, self.threads or torch.get_num_threads())

    @cached_property
    def single(self) -> SingleNetwork | None:
        """The kernel for one sample, likewise."""
        return SingleNetwork.of(self.network)

    def scores(self, X: ArrayLike | Tensor) -> Sums:
        """The int32 scores of raw samples."""
        raw, rows = self.network.check(X), self.network.rows
        run = self.engine(raw)
        return np.concatenate([run(raw[k : k + rows]) for k in range(0, len(raw), rows)])

    def engine(self, raw: NDArray[Any]) -> Callable[[NDArray[Any]], Sums]:
        """What is fastest for these checked samples: it takes them and gives their scores."""
        if len(raw) == 1:
            return self._engine_for_one(raw)
        if pays(self.network, len(raw)) and kernels().pay and self.native is not None:
            return self.native.scores
        return self._by_session

    def _engine_for_one(self, raw: NDArray[Any]) -> Callable[[NDArray[Any]], Sums]:
        """Nothing is compiled for the sake of a few single samples, only after many of them."""
        if not pays_for_one(self.network, raw):
            return self._by_session
        self._singles += 1
        there = self._singles > MANY or are_there()
        return self.single.scores if there and self.single is not None else self._by_session

    def _by_session(self, raw: NDArray[Any]) -> Sums:
        scores: Sums = self.session.run(["scores"], {"inputs": raw})[0]
        return scores

    def predict(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """The class label of each sample; the first one where several lead."""
        labels: NDArray[Any] = np.asarray(self.classes)[self.scores(X).argmax(axis=1)]
        return labels

    def predict_proba(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """The class probabilities of each sample."""
        return self.network.probabilities(self.scores(X))

    def save(self, path: str | Path) -> Path:
        """Write it to a file that ``zeroone.load`` reads."""
        from zeroone.deploy.files import write_integers

        return write_integers(self.network, Path(path))

    def __getstate__(self) -> dict[str, Any]:
        """Sessions and kernels are not pickled: a copy makes its own."""
        return {"network": self.network, "threads": self.threads, "_singles": 0}


def open_session(model: str | bytes, threads: int | None = None, *, spin: bool = True) -> Any:
    """A session of ONNX Runtime on the CPU, for a model's bytes or file.

    ``spin``: whether its threads wait for the next call by spinning for a while.
    """
    import onnxruntime

    onnxruntime.disable_telemetry_events()  # who predicts tells nobody
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or torch.get_num_threads()
    options.log_severity_level = 3
    if not spin:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
