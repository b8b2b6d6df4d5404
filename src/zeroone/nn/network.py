"""A 0/1 network: scaling, an optional backbone, linear operators with steps between them, a head.

A network is judged by its consistent forward pass, V_i = step(W_i V_{i-1}), never by the values
that a solver holds in its U and V blocks (erratum E5).
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.nn.backbones import Backbone
from zeroone.nn.heads import Head, make_head
from zeroone.nn.inputs import check_rows, check_width
from zeroone.nn.labels import ClassLabel, is_text
from zeroone.nn.layers import Layer, LayerPlan, balance, build_layers, gaussian, outline
from zeroone.nn.operators import Operator, Shape
from zeroone.nn.scaling import Scaling
from zeroone.nn.targets import Targets
from zeroone.utils.checks import InputError
from zeroone.utils.memmap import SparseRows, split_rows
from zeroone.utils.storage import MODEL, write_tensors
from zeroone.version import __version__

FORMAT_VERSION = 5  # version 0.1 wrote up to 4
BATCH_ROWS, BACKBONE_ROWS = 4096, 512  # samples that are predicted together, at most
BATCH_NUMBERS = 2**26  # numbers that enter or leave one layer, at most


class Network:
    """A 0/1 network, ready to predict from raw inputs."""

    def __init__(
        self,
        layers: Sequence[Layer],
        head: Head | str,
        scaling: Scaling | None = None,
        classes: list[ClassLabel] | None = None,
        backbone: Backbone | None = None,
    ) -> None:
        """Check that the parts fit together.

        Args:
            layers: the layers, which fit together; the last one makes the scores.
            head: the loss on the scores, or its name.
            scaling: scales raw inputs; without it they stay as they are.
            classes: the labels of the scores; 0, 1, ... by default.
            backbone: a backbone that makes features of the scaled inputs for the layers.

        """
        if not layers:
            raise InputError("a network needs at least one layer.")
        self.layers = list(layers)
        if LayerPlan.of(layers[-1]) != LayerPlan(layers[-1].operator.n_out):
            raise InputError("the last layer is not one of scores: it has to be dense.")
        self.head = head if isinstance(head, Head) else make_head(head)
        self.backbone = backbone
        first = self.layers[0].operator.n_inputs
        if backbone is not None and backbone.n_features != first:
            raise InputError(
                f"the backbone makes {backbone.n_features} features but the first layer takes "
                f"{first}."
            )
        n_inputs = backbone.n_inputs if backbone else first
        self.scaling = scaling or Scaling.identity(n_inputs, self.dtype)
        if self.scaling.n_taken != n_inputs:
            raise InputError(
                f"the scaling is for {self.scaling.n_taken} features but the network takes "
                f"{n_inputs}."
            )
        self.feature_names: list[str] | None = None
        labels = range(self.n_classes) if classes is None else classes
        self.classes: list[ClassLabel] = np.asarray(labels).tolist()
        dtypes = {op.weight.dtype for op in self.operators}
        if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
            raise InputError(f"weights must all be float32, or all float64, not {dtypes}.")
        if len(set(self.classes)) != len(self.classes):
            raise InputError("class labels must be distinct.")
        if len(self.classes) != self.n_classes:
            raise InputError(
                f"{len(self.classes)} class labels for a network with {self.n_classes} outputs."
            )

    def __repr__(self) -> str:
        """Summarise the layers, the head and the sizes, as torch does for modules."""
        layers = [LayerPlan.of(x).outline(x.operator.shape_in, x.shape_out) for x in self.layers]
        total, backbone = sum(op.weight.numel() for op in self.operators), ""
        if self.backbone is not None:
            total += sum(p.numel() for p in self.backbone.parameters())
            backbone = f"{self.backbone.name}, {self.backbone.n_features} features"
        about = {
            "inputs": self.n_features,
            "classes": self.n_classes,
            "head": self.head.kind,
            "parameters": f"{total:,}",
        }
        return outline("Network", layers, about, backbone)

    @classmethod
    def build(
        cls,
        shape_in: Shape,
        hidden: Sequence[LayerPlan | int | str],
        n_classes: int,
        head: Head | str,
        *,
        std: float | None = None,
        bias: bool = True,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        scaling: Scaling | None = None,
        classes: list[ClassLabel] | None = None,
    ) -> "Network":
        """Return a network with random weights for samples of a shape.

        With ``std``, the weights are Gaussian with this standard deviation, and biases start at 0.
        Without it, the start is balanced: every hidden unit is on for about half of the samples,
        and the scores are small.
        """
        draw = gaussian(std, torch.Generator().manual_seed(seed), dtype)
        plans = [LayerPlan.parse(layer) for layer in (*hidden, n_classes)]
        layers = build_layers(plans, shape_in, draw, bias=bias)
        if std is None:
            balance(layers)
        return cls(layers, head, scaling, classes)

    @property
    def operators(self) -> list[Operator]:
        """The operators of the layers, the first one first."""
        return [layer.operator for layer in self.layers]

    @property
    def streams(self) -> list[bool]:
        """Whether each layer adds the sums of the layer below to its own."""
        return [layer.stream for layer in self.layers]

    def name_features(self, names: Sequence[str]) -> None:
        """Name the inputs, so that columns of a frame are found by their names."""
        plain = all(isinstance(name, str) and is_text(name) for name in names)
        if not plain or (len(set(names)), len(names)) != (self.n_features, self.n_features):
            raise InputError(f"{self.n_features} inputs need as many names, distinct strings.")
        self.feature_names = list(names)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.layers[0].operator.weight.dtype

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.layers[0].operator.weight.device

    def to(self, device: torch.device) -> "Network":
        """Move all tensors to a device, in place.

        Inputs follow. ``scores`` and predictions return to the CPU; ``forward`` and bits do not.
        """
        for layer in self.layers:
            layer.operator.weight = layer.operator.weight.to(device)
            if layer.thresholds is not None:
                layer.thresholds = layer.thresholds.to(device)
        self.scaling = self.scaling.to(device)
        if self.backbone is not None:
            self.backbone.to(device)
        return self

    @property
    def n_features(self) -> int:
        """How many inputs a raw sample has, including those left out."""
        return len(self.scaling.centre)

    @property
    def shape_in(self) -> Shape:
        """The shape of a raw sample: channels, height, width for images, else ``(n_features,)``."""
        shape = self.backbone.image if self.backbone else self.layers[0].operator.shape_in
        return shape if len(shape) == 3 else (self.n_features,)

    @property
    def takes_bytes(self) -> bool:
        """Whether raw inputs may be bytes, such as pixels: not if it was trained on others."""
        return self.scaling.inputs is None or self.scaling.inputs.are_bytes

    @property
    def n_classes(self) -> int:
        """How many scores there are."""
        return self.layers[-1].operator.n_out

    @property
    def targets(self) -> Targets:
        """What the network answers: that of its head."""
        return self.head.targets

    @property
    def takes_bits(self) -> list[bool]:
        """Whether the inputs of each operator are 0/1."""
        return [i > 0 for i in range(len(self.layers))]

    def on_backbone(self, backbone: Backbone, scaling: Scaling) -> "Network":
        """Return a network of ``backbone`` and these layers, which were trained on its features."""
        return Network(self.layers, self.head, scaling, self.classes, backbone)

    def features(self, V: Tensor) -> Tensor:
        """Return what the first layer takes, given scaled inputs."""
        if self.backbone is None:
            return V
        with torch.no_grad():
            features: Tensor = self.backbone(V)
        return features

    def forward(self, V0: Tensor) -> Tensor:
        """Return the scores U_h of scaled inputs."""
        *_, (_, scores) = self._activations(V0)
        return scores

    def hidden_bits(self, V0: Tensor) -> list[Tensor]:
        """Return the 0/1 activations of every hidden layer for scaled inputs."""
        return [V for V, _ in self._activations(V0)][1:]

    def _activations(self, V0: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield what enters each layer, and the pooled pre-activations that the layer makes."""
        V, U = self.features(V0), None
        for layer in self.layers[:-1]:
            U = layer.sums(V, U)
            yield V, U
            V = layer.activate(U)
        yield V, self.layers[-1].sums(V, U)

    def bits(self, X: ArrayLike | Tensor) -> list[Tensor]:
        """Return the 0/1 activations of every hidden layer for raw inputs."""
        return self.hidden_bits(self.scaling.apply(self.inputs(X)[:]))

    def scores(self, X: ArrayLike | Tensor) -> Tensor:
        """Return the scores U_h of raw inputs, computed batch by batch, on the CPU."""
        parts = split_rows(self.inputs(X), fitting_rows(self))
        return torch.cat([self.forward(self.scaling.apply(rows)).cpu() for rows in parts])

    def predict(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """Return the class label of each sample; if several classes lead, the first of them.

        By the head's targets, the answer may also be an indicator matrix of labels ('logistic') or
        real numbers ('linear').
        """
        return self.targets.answers(self.scores(X), np.asarray(self.classes))

    def predict_proba(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """Return the class probabilities of each sample, without the smoothing of the labels."""
        probabilities: NDArray[Any] = self.head.probabilities(self.scores(X)).numpy()
        return probabilities

    def inputs(self, X: Any) -> Tensor | SparseRows:
        """Check raw inputs; bytes stay bytes, and sparse rows sparse, until a batch is scaled.

        If the network knows the names of its inputs, it picks the columns of a frame by name.
        """
        columns = getattr(X, "columns", None)
        if self.feature_names is not None and columns is not None:
            missing = [name for name in self.feature_names if name not in columns]
            if missing:
                raise InputError(
                    f"X lacks {len(missing)} of the network's columns: {missing[0]!r}."
                )
            X = X[self.feature_names]
        rows = check_width(check_rows(X, self.dtype), self.n_features)
        if self.scaling.bits < 8 and isinstance(rows, Tensor) and rows.is_floating_point():
            whole = (rows == rows.round()) & (rows >= 0) & (rows <= 255)
            if not bool(whole.all()):
                raise InputError("the network takes bytes, whole numbers from 0 to 255.")
        return rows

    def save(self, path: str | Path) -> Path:
        """Write the network to a safetensors file, completely or not at all."""
        header = {
            "version": FORMAT_VERSION,
            "package": __version__,
            "samples": self.layers[0].operator.shape_in,
            "layers": [str(LayerPlan.of(layer)) for layer in self.layers],
            "head": self.head.describe(),
            "classes": self.classes,
        }
        if self.feature_names is not None:
            header["features"] = self.feature_names
        tensors = {f"layers.{i}.weight": op.weight for i, op in enumerate(self.operators)}
        for i, layer in enumerate(self.layers):
            if layer.thresholds is not None:
                tensors[f"layers.{i}.thresholds"] = layer.thresholds
        scaling, ranges = self.scaling, self.scaling.inputs
        tensors |= {"scaling.centre": scaling.centre, "scaling.scale": scaling.scale}
        if scaling.taken is not None:
            header["taken"] = scaling.taken.tolist()
        if scaling.constant is not None and len(scaling.constant):
            header["constant"] = scaling.constant.tolist()
        if ranges is not None:
            header["bytes"] = ranges.are_bytes
            if self.scaling.bits < 8:
                header["input_bits"] = self.scaling.bits
            if not ranges.are_bytes:
                tensors |= {"scaling.low": ranges.low, "scaling.high": ranges.high}
        if self.backbone is not None:
            header["body"] = self.backbone.describe()
            tensors |= {f"body.{name}": T for name, T in self.backbone.tensors().items()}
        return write_tensors(Path(path), MODEL, header, tensors)

    def export(
        self,
        to: str,
        path: str | Path,
        image: Shape | None = None,
        *,
        like: ArrayLike | Tensor | None = None,
    ) -> list[str]:
        """Write the network's integer form as C ("c"), ONNX ("onnx") or a web page ("html").

        Args:
            to: the format, or the name of a registered exporter.
            path: the file: .c, .onnx or .html.
            image: for html, the channels, height and width of a sample; () if samples are no
                images; None guesses.
            like: raw inputs that show the range of each feature, for a network that does not know
                it.

        Returns:
            Lines that describe what was written.

        """
        from zeroone.deploy.quantise import quantise

        return quantise(self, like).export(to, path, image)


def check_network(network: Any) -> Network:
    """Require a network; of a classifier, the user may have forgotten to take it."""
    if not isinstance(network, Network):
        hint = "; of a fitted classifier, give its network_" if hasattr(network, "fit") else ""
        raise InputError(f"this takes a zeroone.Network, not {type(network).__name__}{hint}.")
    return network


def fitting_rows(model: Any) -> int:
    """Return how many samples fit into memory together, of a model with operators."""
    largest: int = max(max(op.n_inputs, math.prod(op.shape_out)) for op in model.operators)
    most = BATCH_ROWS if model.backbone is None else BACKBONE_ROWS
    return min(most, max(1, BATCH_NUMBERS // largest))
