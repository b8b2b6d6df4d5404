"""A 0/1 network: scaling, perhaps a body, linear operators with a step between them, a head.

Shortcuts may lead from earlier activations around layers; see ``Layer``.

A network is judged by its consistent forward pass, V_i = step(W_i V_{i-1}), never by the values
that a solver holds in its U and V blocks (erratum E5).
"""

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.nn.backbones import Backbone
from zeroone.nn.functional import classify, step
from zeroone.nn.heads import Head, make_head
from zeroone.nn.inputs import check_rows, check_width
from zeroone.nn.layers import (
    MOST_SIDE,
    Layer,
    LayerPlan,
    Link,
    build_layers,
    make_links,
    naming,
    recent,
)
from zeroone.nn.operators import Conv2d, Dense, Operator, Shape
from zeroone.nn.pooling import make_pool
from zeroone.nn.scaling import InputRange, Scaling
from zeroone.utils.checks import InputError, count
from zeroone.utils.memmap import SparseRows, split_rows
from zeroone.utils.storage import MODEL, read_model, write_tensors
from zeroone.version import __version__

# The newest: 4 leaves inputs out, 3 has shortcuts, 2 a body, 1 none of these. A file has the oldest
# that says all of it, for older readers.
FORMAT_VERSION = 4
BATCH_ROWS, BACKBONE_ROWS = 4096, 512  # samples that are predicted together, at most
BATCH_NUMBERS = 2**26  # numbers of one layer's pre-activations, at most

ClassLabel = int | float | str | bool


class Network:
    """A 0/1 network, ready to predict from raw inputs."""

    def __init__(
        self,
        layers: Sequence[Layer | Operator],
        head: Head,
        scaling: Scaling | None = None,
        classes: list[ClassLabel] | None = None,
        body: Backbone | None = None,
    ) -> None:
        """``scaling`` is that of the inputs; a ``body`` makes features of them for the layers."""
        if not layers:
            raise InputError("a network needs at least one operator.")
        self.layers = [x if isinstance(x, Layer) else Layer(x) for x in layers]
        for i, layer in enumerate(self.layers):
            with naming(f"layer {i + 1}"):
                _ = layer.shape_out  # refuses windows that do not fit
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
        for i in range(len(self.layers)):
            self._check_shortcut(i)
        first = body.n_inputs if body else self.layers[0].operator.n_inputs
        self.scaling = scaling or Scaling.identity(first, self.dtype)
        if self.scaling.n_taken != first:
            raise InputError(
                f"the scaling is for {self.scaling.n_taken} features but the network takes {first}."
            )
        self.feature_names: list[str] | None = None
        labels = range(self.n_classes) if classes is None else classes
        self.classes: list[ClassLabel] = np.asarray(labels).tolist()
        dtypes = {op.weight.dtype for layer in self.layers for op in layer.operators}
        if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
            raise InputError(f"weights must all be float32, or all float64, not {dtypes}.")
        if len(set(self.classes)) != len(self.classes):
            raise InputError("class labels must be distinct.")
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
    def shortcuts(self) -> list[Link]:
        """In their places."""
        return [
            Link(layer.shortcut, i + 1 - layer.skip, i)
            for i, layer in enumerate(self.layers)
            if layer.shortcut is not None
        ]

    @property
    def links(self) -> list[Link]:
        """The operators in their places, the first one first, then the shortcuts."""
        return make_links(self.operators, self.shortcuts)

    def into(self, i: int) -> list[Link]:
        """What layer i adds up: its own operator, then its shortcut if it has one."""
        return [link for link in self.links if link.layer == i]

    def consumers(self, i: int) -> list[Link]:
        """What takes the activations V[i]: the operator of layer i, then shortcuts."""
        return [link for link in self.links if link.source == i]

    def replace(self, link: Link, operator: Operator) -> None:
        """Put another operator in the place of a link."""
        layer = self.layers[link.layer]
        if link.source == link.layer:
            layer.operator = operator
        else:
            layer.shortcut = operator

    def _check_shortcut(self, i: int) -> None:
        layer = self.layers[i]
        if layer.shortcut is None:
            return
        if layer is self.layers[-1]:
            raise InputError("the last layer of a network has no shortcut.")
        if not 2 <= layer.skip <= i + 1:
            raise InputError(f"layer {i + 1} cannot have a shortcut with skip={layer.skip}.")
        source = i + 1 - layer.skip
        below = self.layers[source - 1].shape_out if source else self.layers[0].operator.shape_in
        needed = (below, layer.operator.shape_out)
        found = (layer.shortcut.shape_in, layer.shortcut.shape_out)
        if found != needed or layer.shortcut.bias:
            raise InputError(
                f"layer {i + 1} needs a shortcut without a bias from samples of shape {needed[0]} "
                f"to {needed[1]}, got one from {found[0]} to {found[1]}."
            )

    def name_features(self, names: Sequence[str]) -> None:
        """Remember what the inputs are called, so that they can be found by their names."""
        plain = all(isinstance(name, str) for name in names)
        if not plain or (len(set(names)), len(names)) != (self.n_features, self.n_features):
            raise InputError(f"{self.n_features} inputs need as many names, distinct strings.")
        self.feature_names = list(names)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.layers[0].operator.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.layers[0].operator.weight.device

    def to(self, device: torch.device) -> "Network":
        """Move all numbers there, in place; raw inputs follow them, results come back."""
        for link in self.links:
            link.operator.weight = link.operator.weight.to(device)
        self.scaling = self.scaling.to(device)
        if self.body is not None:
            self.body.to(device)
        return self

    @property
    def n_features(self) -> int:
        """How many inputs a sample has, those that are left out included."""
        return len(self.scaling.centre)

    @property
    def n_classes(self) -> int:
        """How many outputs there are."""
        return self.layers[-1].operator.n_out

    @property
    def batch_rows(self) -> int:
        """How many samples fit into memory together."""
        return fitting_rows(self.operators, self.body is not None)

    @property
    def takes_bits(self) -> list[bool]:
        """For each operator whether its inputs are 0/1."""
        return [i > 0 for i in range(len(self.layers))]

    def on_body(self, body: Backbone, scaling: Scaling) -> "Network":
        """The network of this one's layers, which took the body's features, on the body itself."""
        return Network(self.layers, self.head, scaling, self.classes, body)

    def features(self, V: Tensor) -> Tensor:
        """What the first layer takes, of already scaled inputs."""
        if self.body is None:
            return V
        with torch.no_grad():
            features: Tensor = self.body(V)
        return features

    def recent(self, V0: Tensor) -> deque[Tensor]:
        """A place for the activations of scaled inputs, for as long as they are needed."""
        return recent(V0, (layer.skip for layer in self.layers))

    def forward(self, V0: Tensor) -> Tensor:
        """The scores U_h of already scaled inputs."""
        V = self.recent(self.features(V0))
        for layer in self.layers[:-1]:
            V.append(step(layer.forward(V)))
        return self.layers[-1].forward(V)

    def bits(self, X: ArrayLike | Tensor) -> list[Tensor]:
        """The 0/1 activations of every hidden layer for raw inputs."""
        return self.hidden_bits(self.scaling.apply(self.inputs(X)[:]))

    def hidden_bits(self, V0: Tensor) -> list[Tensor]:
        """The 0/1 activations of every hidden layer for already scaled inputs."""
        V = [self.features(V0)]
        for layer in self.layers[:-1]:
            V.append(step(layer.forward(V)))
        return V[1:]

    def scores(self, X: ArrayLike | Tensor) -> Tensor:
        """The scores U_h of raw inputs, batch by batch; they are on the CPU."""
        parts = split_rows(self.inputs(X), self.batch_rows)
        return torch.cat([self.forward(self.scaling.apply(rows)).cpu() for rows in parts])

    def predict(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """The class label of each sample; the first one where several lead."""
        labels: NDArray[Any] = np.asarray(self.classes)[classify(self.scores(X)).numpy()]
        return labels

    def predict_proba(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """The class probabilities of each sample."""
        probabilities: NDArray[Any] = self.head.probabilities(self.scores(X)).numpy()
        return probabilities

    def inputs(self, X: Any) -> Tensor | SparseRows:
        """Raw inputs, checked; bytes and sparse rows stay so until a batch is scaled.

        The columns of a frame are found by their names, if the network knows them.
        """
        columns = getattr(X, "columns", None)
        if self.feature_names is not None and columns is not None:
            missing = [name for name in self.feature_names if name not in columns]
            if missing:
                raise InputError(
                    f"X lacks {len(missing)} of the network's columns: {missing[0]!r}."
                )
            X = X[self.feature_names]
        return check_width(check_rows(X, self.dtype), self.n_features)

    @property
    def _format_version(self) -> int:
        """The oldest that a reader must know: one that leaves out what it does not is worse."""
        if self.scaling.taken is not None:
            return FORMAT_VERSION
        if self.shortcuts:
            return 3
        return 1 if self.body is None else 2

    def save(self, path: str | Path) -> Path:
        """Write the network to a safetensors file, all or nothing."""
        header = {
            "version": self._format_version,
            "package": __version__,
            "layers": [layer.describe() for layer in self.layers],
            "head": self.head.describe(),
            "classes": self.classes,
        }
        if self.feature_names is not None:
            header["features"] = self.feature_names
        tensors = {f"layers.{i}.weight": op.weight for i, op in enumerate(self.operators)}
        tensors |= {f"layers.{x.layer}.shortcut": x.operator.weight for x in self.shortcuts}
        tensors["scaling.centre"] = self.scaling.centre
        tensors["scaling.scale"] = self.scaling.scale
        if self.scaling.taken is not None:
            header["taken"] = self.scaling.taken.tolist()
        ranges = self.scaling.inputs
        if ranges is not None:
            header["bytes"] = ranges.are_bytes
            if not ranges.are_bytes:
                tensors |= {"scaling.low": ranges.low, "scaling.high": ranges.high}
        if self.body is not None:
            header["body"] = self.body.describe()
            tensors |= {f"body.{name}": T for name, T in self.body.tensors().items()}
        return write_tensors(Path(path), MODEL, header, tensors)


def fitting_rows(operators: Sequence[Operator], on_body: bool) -> int:
    """How many samples fit into memory together."""
    largest = max(math.prod(op.shape_out) for op in operators)
    rows = min(BATCH_ROWS, max(1, BATCH_NUMBERS // largest))
    return min(rows, BACKBONE_ROWS) if on_body else rows


def load(path: str | Path) -> Network:
    """Read a network that ``Network.save`` wrote; anything else is refused in one sentence."""
    header, tensors = read_model(Path(path), FORMAT_VERSION)
    try:
        layers = [_build(layer, tensors, i) for i, layer in enumerate(header["layers"])]
        head = make_head(header["head"]["kind"], header["head"].get("margin", 0.0))
        scaling = _build_scaling(header, tensors)
        _check_loaded(path, tensors, scaling, header["classes"])
        body = _build_backbone(header["body"], tensors) if "body" in header else None
        network = Network(layers, head, scaling, header["classes"], body)
        if "features" in header:
            network.name_features(header["features"])
        return network
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a complete zeroone model ({error!r}).") from None


def _build_scaling(header: dict[str, Any], tensors: dict[str, Tensor]) -> Scaling:
    centre, taken, ranges = tensors["scaling.centre"], None, None
    if "taken" in header:
        numbers = [count("the number of an input", k, least=0) for k in header["taken"]]
        taken = torch.tensor(numbers, dtype=torch.long)
    if header.get("bytes"):
        low = torch.zeros_like(centre)
        ranges = InputRange(low, low + 255, are_bytes=True)
    elif "scaling.low" in tensors:
        ranges = InputRange(tensors["scaling.low"], tensors["scaling.high"])
    return Scaling(centre, tensors["scaling.scale"], taken, ranges)


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
    """Whether what a file gives as class labels can be some: plain, distinct, of real text."""
    plain = isinstance(classes, list) and all(isinstance(c, int | float | str) for c in classes)
    return plain and len(set(classes)) == len(classes) and all(map(is_text, classes))


def is_text(label: Any) -> bool:
    """Whether a label can be written down; half a character of UTF-16, for one, cannot."""
    try:
        str(label).encode()
    except UnicodeEncodeError:
        return False
    return True


def _build_backbone(described: dict[str, Any], tensors: dict[str, Tensor]) -> Backbone:
    own = {k.removeprefix("body."): T for k, T in tensors.items() if k.startswith("body.")}
    return Backbone.rebuild(described, own)


def _build(layer: dict[str, Any], tensors: dict[str, Tensor], i: int) -> Layer:
    where = f"layer {i + 1}"  # as people count; the names of tensors begin with 0
    operator = _operator(layer, tensors[f"layers.{i}.weight"], where)
    pool = layer.get("pool", {"kind": "none", "size": 1})
    with naming(where):
        built = Layer(operator, make_pool(pool["kind"], pool["size"]))
    if "shortcut" in layer:
        weight = tensors[f"layers.{i}.shortcut"]
        built.shortcut = _operator(layer["shortcut"], weight, f"the shortcut of {where}")
        built.skip = count(f"the skip of {where}", layer["shortcut"]["skip"], least=2)
    return built


def _operator(described: dict[str, Any], weight: Tensor, name: str) -> Operator:
    bias, size = bool(described["bias"]), described["in"]
    shape_in = (size,) if isinstance(size, int) else tuple(size)
    columns = math.prod(shape_in)
    if described["kind"] == Conv2d.kind:
        columns = shape_in[0] * described["kernel"] ** 2
    elif described["kind"] != Dense.kind:
        raise InputError(f"{name} is of the unknown kind {described['kind']!r}.")
    shape = (described["out"], columns + bias)
    if tuple(weight.shape) != shape:
        raise InputError(f"{name} should have weights of shape {shape}, got {tuple(weight.shape)}.")
    if described["kind"] == Dense.kind:
        return Dense(weight, shape_in, bias)
    geometry = {
        key: count(f"the {key} of {name}", described[key], least=key != "padding", most=MOST_SIDE)
        for key in ("kernel", "stride", "padding")
    }
    with naming(name):
        operator = Conv2d(weight, shape_in, bias, **geometry)
    if math.prod(operator.shape_out) > BATCH_NUMBERS:
        raise InputError(f"{name} is too large: {operator.shape_out}.")
    return operator
