"""The data of a training run: checked, encoded, cut into parts, fingerprinted."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from zeroone.checks import InputError
from zeroone.data.arrays import encode_known_labels, encode_labels, stratified_cut
from zeroone.inputs import check_inputs, check_width
from zeroone.layers import LayerPlan, check_image
from zeroone.network import ClassLabel
from zeroone.operators import Shape
from zeroone.scaling import Scaling
from zeroone.training.settings import DTYPES, TrainSettings

Labelled = tuple[ArrayLike | Tensor, ArrayLike | Tensor]


@dataclass(frozen=True)
class Part:
    """Checked raw inputs and class numbers."""

    X: Tensor
    y: Tensor

    def sample(self, size: int) -> "Part":
        """At most ``size`` samples, evenly spread over the part."""
        if len(self.y) <= size:
            return self
        rows = torch.linspace(0, len(self.y) - 1, size).long()
        return Part(self.X[rows], self.y[rows])

    def digest(self) -> str:
        """A fingerprint of the samples and class numbers, in their order."""
        digest = hashlib.sha256()
        for rows in torch.split(self.X, 4096):
            digest.update(rows.numpy().tobytes())
        digest.update(self.y.numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Task:
    """What is learned: parts of the data, the scaling learned on them, the classes."""

    parts: dict[str, Part]  # train, and perhaps validation and test
    scaling: Scaling
    classes: list[ClassLabel]
    name: str | None = None
    image: Shape | None = None  # channels, height, width of a sample, if it is an image

    @classmethod
    def prepare(
        cls,
        X: ArrayLike | Tensor,
        y: ArrayLike | Tensor,
        settings: TrainSettings,
        test: Labelled | None = None,
        name: str | None = None,
        image: Shape | None = None,
    ) -> "Task":
        """Check raw data, hold out the validation part, learn the scaling on the rest."""
        dtype = DTYPES[settings.dtype]
        inputs = check_inputs(X, dtype)
        codes, classes = encode_labels(y, len(inputs))
        parts = _cut_validation(Part(inputs, codes), settings)
        scaling = Scaling.fit(parts["train"].X, dtype, settings.scaling)
        if test is not None:
            parts["test"] = known_part(*test, classes, inputs.shape[1], dtype)
        if image is not None and math.prod(image) != inputs.shape[1]:
            raise InputError(
                f"samples of {inputs.shape[1]} numbers are no images of shape {image}."
            )
        return cls(parts, scaling, classes, name, image)

    @property
    def n_features(self) -> int:
        """How many inputs a sample has."""
        return self.parts["train"].X.shape[1]

    def shape_for(self, plans: Sequence[LayerPlan]) -> Shape:
        """How the first layer takes a sample: as an image if it is a convolution."""
        return check_image(self.image) if plans and plans[0].kernel else (self.n_features,)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The fingerprint of each part, taken once: the state and the record need it."""
        return {name: part.digest() for name, part in self.parts.items()}

    def probe(self, size: int) -> Tensor:
        """Some scaled training inputs."""
        return self.scaling.apply(self.parts["train"].sample(size).X)


def known_part(
    X: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    classes: list[ClassLabel],
    n_features: int,
    dtype: torch.dtype,
) -> Part:
    """Raw inputs and labels as a network scores them; a label it does not know is never right."""
    inputs = check_width(check_inputs(X, dtype), n_features)
    return Part(inputs, encode_known_labels(y, classes, len(inputs)))


def _cut_validation(part: Part, settings: TrainSettings) -> dict[str, Part]:
    if not settings.validation:
        return {"train": part}
    rest, cut = stratified_cut(part.y.numpy(), settings.validation, settings.seed)
    return {
        "train": Part(part.X[rest], part.y[rest]),
        "validation": Part(part.X[cut], part.y[cut]),
    }
