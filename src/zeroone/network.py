"""A 0/1 network: scaling, perhaps a body, linear operators with a step between them, a head.

A network is judged by its consistent forward pass, V_i = step(W_i V_{i-1}), never by the values
that a solver holds in its U and V blocks (erratum E5).
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.bodies import Body
from zeroone.checks import InputError, count
from zeroone.heads import Head, make_head
from zeroone.inputs import check_inputs, check_width
from zeroone.layers import Layer, LayerPlan, build_layers
from zeroone.operators import Conv2d, Dense, Operator, Shape
from zeroone.ops import classify, step
from zeroone.pooling import make_pool
from zeroone.scaling import Scaling
from zeroone.storage import MODEL, read_model, write_tensors
from zeroone.version import __version__

FORMAT_VERSION = 2  # without a body 1: what reads no bodies can read it
BATCH_ROWS = 4096

ClassLabel = int | float | str | bool


class Network:
    """A 0/1 network, ready to predict from raw inputs."""

    def __init__(
        self,
        layers: Sequence[Layer | Operator],
        head: Head,
        scaling: Scaling | None = None,
        classes: list[ClassLabel] | None = None,
        body: Body | None = None,
    ) -> None:
        """``scaling`` is that of the inputs; a ``body`` makes features of them for the layers."""
        if not layers:
            raise InputError("a network needs at least one operator.")
        self.layers = [x if isinstance(x, Layer) else Layer(x) for x in layers]
        for i, (below, above) in enumerate(pairwise(self.layers)):
            if below.shape_out != above.operator.shape_in:
                raise InputError(
                    f"layer {i + 1} gives samples of shape {below.shape_out} but layer {i + 2} "
                    f"takes {above.operator.shape_in}."
                )
        self.head, self.body = head, body
        if body is not None and body.n_features != self.layers[0].operator.n_inputs:
            raise InputError(
                f"the body makes {body.n_features} features but the first layer takes "
                f"{self.layers[0].operator.n_inputs}."
            )
        self.scaling = scaling or Scaling.identity(self.n_features, self.dtype)
        if len(self.scaling.centre) != self.n_features:
            raise InputError(
                f"the scaling is for {len(self.scaling.centre)} features but the network takes "
                f"{self.n_features}."
            )
        self.classes: list[ClassLabel] = list(classes or range(self.n_classes))
        if len(self.classes) != self.n_classes:
            raise InputError(
                f"{len(self.classes)} class labels for a network with {self.n_classes} outputs."
            )

    @classmethod
    def build(
        cls,
        shape_in: Shape,
        hidden: Sequence[LayerPlan],
        n_classes: int,
        head: Head,
        *,
        std: float | None = None,
        bias: bool = True,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        scaling: Scaling | None = None,
        classes: list[ClassLabel] | None = None,
    ) -> "Network":
        """A network with random weights, of samples of this shape; see ``build_layers``."""
        plans = [*hidden, LayerPlan(n_classes)]
        generator = torch.Generator().manual_seed(seed)
        layers = build_layers(plans, shape_in, std=std, bias=bias, generator=generator, dtype=dtype)
        return cls(layers, head, scaling, classes)

    @classmethod
    def dense(cls, widths: Sequence[int], head: Head, **options: Any) -> "Network":
        """A fully connected network of the given widths (inputs first, classes last).

        Gaussian weights with spread ``std`` and biases of zero; without ``std`` a balanced start:
        every hidden unit is on for about half of the samples, and the scores are small.
        """
        for width in widths:
            count("every layer's width", width)
        n_in, *hidden, n_classes = widths
        return cls.build(
            (n_in,), [LayerPlan(width) for width in hidden], n_classes, head, **options
        )

    @property
    def operators(self) -> list[Operator]:
        """Of the layers, the first one first."""
        return [layer.operator for layer in self.layers]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.layers[0].operator.weight.dtype

    @property
    def n_features(self) -> int:
        """How many inputs a sample has."""
        return self.body.n_inputs if self.body else self.layers[0].operator.n_inputs

    @property
    def n_classes(self) -> int:
        """How many outputs there are."""
        return self.layers[-1].operator.n_out

    @property
    def takes_bits(self) -> list[bool]:
        """For each operator whether its inputs are 0/1."""
        return [i > 0 for i in range(len(self.layers))]

    def on_body(self, body: Body, scaling: Scaling) -> "Network":
        """The network of this one's layers, which took the body's features, on the body itself."""
        return Network(self.layers, self.head, scaling, self.classes, body)

    def features(self, V: Tensor) -> Tensor:
        """What the first layer takes, of already scaled inputs."""
        if self.body is None:
            return V
        with torch.no_grad():
            features: Tensor = self.body(V)
        return features

    def forward(self, V: Tensor) -> Tensor:
        """The scores U_h of already scaled inputs."""
        V = self.features(V)
        for layer in self.layers[:-1]:
            V = step(layer.forward(V))
        return self.layers[-1].forward(V)

    def bits(self, X: ArrayLike | Tensor) -> list[Tensor]:
        """The 0/1 activations of every hidden layer for raw inputs."""
        return self.hidden_bits(self.scaling.apply(self.inputs(X)))

    def hidden_bits(self, V: Tensor) -> list[Tensor]:
        """The 0/1 activations of every hidden layer for already scaled inputs."""
        activations = []
        V = self.features(V)
        for layer in self.layers[:-1]:
            V = step(layer.forward(V))
            activations.append(V)
        return activations

    def scores(self, X: ArrayLike | Tensor) -> Tensor:
        """The scores U_h of raw inputs, batch by batch."""
        parts = torch.split(self.inputs(X), BATCH_ROWS)
        return torch.cat([self.forward(self.scaling.apply(rows)) for rows in parts])

    def predict(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """The class label of each sample; the first one where several lead."""
        labels: NDArray[Any] = np.asarray(self.classes)[classify(self.scores(X)).numpy()]
        return labels

    def predict_proba(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """The class probabilities of each sample."""
        probabilities: NDArray[Any] = self.head.probabilities(self.scores(X)).numpy()
        return probabilities

    def inputs(self, X: ArrayLike | Tensor) -> Tensor:
        """Raw inputs, checked; bytes stay bytes until a batch is scaled."""
        return check_width(check_inputs(X, self.dtype), self.n_features)

    def save(self, path: str | Path) -> Path:
        """Write the network to a safetensors file, all or nothing."""
        header = {
            "version": 1 if self.body is None else FORMAT_VERSION,
            "package": __version__,
            "layers": [layer.describe() for layer in self.layers],
            "head": self.head.describe(),
            "classes": self.classes,
        }
        tensors = {f"layers.{i}.weight": op.weight for i, op in enumerate(self.operators)}
        tensors["scaling.centre"] = self.scaling.centre
        tensors["scaling.scale"] = self.scaling.scale
        if self.body is not None:
            header["body"] = self.body.describe()
            tensors |= {f"body.{name}": T for name, T in self.body.tensors().items()}
        return write_tensors(Path(path), MODEL, header, tensors)


def load(path: str | Path) -> Network:
    """Read a network that ``Network.save`` wrote; anything else is refused in one sentence."""
    header, tensors = read_model(Path(path), FORMAT_VERSION)
    try:
        layers = [_build(layer, tensors, i) for i, layer in enumerate(header["layers"])]
        head = make_head(header["head"]["kind"], header["head"].get("margin", 0.0))
        scaling = Scaling(tensors["scaling.centre"], tensors["scaling.scale"])
        _check_loaded(path, tensors, header["classes"])
        body = _build_body(header["body"], tensors) if "body" in header else None
        return Network(layers, head, scaling, header["classes"], body)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a complete zeroone model ({error!r}).") from None


def _check_loaded(path: str | Path, tensors: dict[str, Tensor], classes: Any) -> None:
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) != 1 or not dtypes <= {torch.float32, torch.float64}:
        raise InputError(f"{path} mixes number formats, or uses another than float32 or float64.")
    scale, centre = tensors["scaling.scale"], tensors["scaling.centre"]
    if centre.ndim != 1 or scale.shape not in {(), centre.shape} or bool((scale <= 0).any()):
        raise InputError(f"{path} has a scaling whose scales are not positive, or not as many.")
    plain = isinstance(classes, list) and all(isinstance(c, int | float | str) for c in classes)
    if not plain or len(set(classes)) != len(classes):
        raise InputError(f"{path} has class labels that are not plain and distinct.")


def _build_body(described: dict[str, Any], tensors: dict[str, Tensor]) -> Body:
    own = {k.removeprefix("body."): T for k, T in tensors.items() if k.startswith("body.")}
    return Body.rebuild(described, own)


def _build(layer: dict[str, Any], tensors: dict[str, Tensor], i: int) -> Layer:
    weight, bias = tensors[f"layers.{i}.weight"], bool(layer["bias"])
    size = layer["in"]
    shape_in = (size,) if isinstance(size, int) else tuple(size)
    columns = math.prod(shape_in)
    if layer["kind"] == Conv2d.kind:
        columns = shape_in[0] * layer["kernel"] ** 2
    elif layer["kind"] != Dense.kind:
        raise InputError(f"layer {i} is of the unknown kind {layer['kind']!r}.")
    shape = (layer["out"], columns + bias)
    if tuple(weight.shape) != shape:
        raise InputError(
            f"layer {i} should have weights of shape {shape}, got {tuple(weight.shape)}."
        )
    if layer["kind"] == Dense.kind:
        return Layer(Dense(weight, shape_in, bias))
    geometry = {name: layer[name] for name in ("kernel", "stride", "padding")}
    pool = layer.get("pool", {"kind": "none", "size": 1})
    return Layer(Conv2d(weight, shape_in, bias, **geometry), make_pool(pool["kind"], pool["size"]))
