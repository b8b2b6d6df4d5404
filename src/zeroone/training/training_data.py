"""The data of a training run: checked, encoded, cut into parts, fingerprinted."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.data.shards import Shards
from zeroone.data.splits import encode_known_labels, encode_labels, stratified_cut
from zeroone.nn.inputs import check_rows, check_weights, check_width
from zeroone.nn.layers import LayerPlan, check_image
from zeroone.nn.network import ClassLabel
from zeroone.nn.operators import Shape
from zeroone.nn.scaling import Scaling
from zeroone.training.augment import CropFlip
from zeroone.training.features import Features
from zeroone.training.settings import DTYPES, TrainSettings
from zeroone.utils.checks import InputError
from zeroone.utils.memmap import Rows, select_rows, split_rows
from zeroone.utils.parallel import ALONE, Share, Team

Labelled = tuple[ArrayLike | Tensor, ArrayLike | Tensor]


@dataclass(frozen=True)
class Subset:
    """Checked raw inputs and class numbers; perhaps how often each sample counts.

    ``here``: of sharded data, the numbers of the samples whose inputs this rank has, in rising
    order; ``X`` holds just these, ``y`` and ``weights`` those of all ranks. None is for all.
    """

    X: Rows
    y: Tensor
    weights: Tensor | None = None  # 1 on average
    here: Tensor | None = None
    written: str = ""  # the fingerprint of sharded inputs, taken when they were written

    def rows(self, rows: Tensor | NDArray[Any]) -> "Subset":
        """These samples."""
        numbers = torch.as_tensor(rows)
        if numbers.dtype == torch.bool:
            numbers = numbers.nonzero().flatten()
        weights = None if self.weights is None else self.weights[numbers]
        written = (
            self.written
            and hashlib.sha256(self.written.encode() + numbers.numpy().tobytes()).hexdigest()
        )
        if self.here is None:
            return Subset(select_rows(self.X, numbers), self.y[numbers], weights, None, written)
        places, found = self._places(numbers)
        return Subset(
            select_rows(self.X, places[found]),
            self.y[numbers],
            weights,
            found.nonzero().flatten(),
            written,
        )

    def _places(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Where in X these samples are, and whether they are there at all."""
        assert self.here is not None
        places = torch.searchsorted(self.here, numbers).clamp_max(max(0, len(self.here) - 1))
        if not len(self.here):
            return places, torch.zeros(len(numbers), dtype=torch.bool)
        return places, self.here[places] == numbers

    def share(self, numbers: Tensor, team: Team) -> Share:
        """Which samples of a batch are a rank's: those that it has, or its slice of them."""
        if team.size == 1:
            return Share(len(numbers))
        if self.here is None:
            mine = team.slice(len(numbers))
            return Share(len(numbers), torch.arange(mine.start, mine.stop))
        return Share(len(numbers), self._places(numbers)[1].nonzero().flatten())

    def inputs(self, numbers: Tensor) -> Tensor:
        """The inputs of samples that are here."""
        return self.X[numbers if self.here is None else self._places(numbers)[0]]

    def mine(self, team: Team) -> "Subset":
        """What a rank has, or its slice of what all have; ``own_rows`` are its numbers."""
        if self.here is not None:
            weights = None if self.weights is None else self.weights[self.here]
            return Subset(self.X, self.y[self.here], weights)
        if team.size == 1:
            return self
        return self.rows(self.own_rows(team))

    def own_rows(self, team: Team) -> Tensor:
        """The numbers of a rank's samples."""
        mine = team.slice(len(self.y))
        return torch.arange(mine.start, mine.stop) if self.here is None else self.here

    def sample(self, size: int) -> "Subset":
        """At most ``size`` samples, evenly spread over the part."""
        if len(self.y) <= size:
            return self
        return self.rows(torch.linspace(0, len(self.y) - 1, size).long())

    def digest(self) -> str:
        """A fingerprint of the samples and class numbers, in their order."""
        digest = hashlib.sha256(self.written.encode())
        for rows in () if self.written else split_rows(self.X, 4096):
            digest.update(rows.numpy().tobytes())
        digest.update(self.y.numpy().tobytes())
        if self.weights is not None:
            digest.update(self.weights.numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class TrainingData:
    """What is learned: parts of the data, the scaling learned on them, the classes."""

    parts: dict[str, Subset]  # train, and perhaps validation and test
    scaling: Scaling
    classes: list[ClassLabel]
    name: str | None = None
    image: Shape | None = None  # channels, height, width of a sample, if it is an image
    features: Features | None = None  # of a body: then the parts hold these
    raw: dict[str, Subset] = field(default_factory=dict)  # and these are the parts that it took

    @classmethod
    def prepare(
        cls,
        X: ArrayLike | Tensor,
        y: ArrayLike | Tensor,
        settings: TrainSettings,
        test: Labelled | None = None,
        name: str | None = None,
        image: Shape | None = None,
        features: Features | None = None,
        weights: ArrayLike | Tensor | None = None,
        team: Team = ALONE,
    ) -> "TrainingData":
        """Check raw data, hold out the validation part, learn the scaling on the rest.

        With ``features`` these are what is learned from, in place of the raw inputs. ``weights``:
        how often each sample counts; those of weight 0 are left out. ``team``: whose ranks share
        sharded data.
        """
        dtype = DTYPES[settings.dtype]
        if weights is not None and features is not None:
            raise InputError("layers on a body take no weights of samples.")
        parts, classes = _cut(X, y, test, settings, weights, team)
        n_inputs = parts["train"].X.shape[1]
        if image is not None and math.prod(image) != n_inputs:
            raise InputError(f"samples of {n_inputs} numbers are no images of shape {image}.")
        raw: dict[str, Subset] = {}
        if features is not None:
            if settings.augment != "none":
                raise InputError("features are computed once: augment is for the body's training.")
            made = None
            if test is not None and features.test is not None:
                made = (features.test, test[1])
            raw, (parts, _) = parts, _cut(features.train, y, made, settings)
            image = None
        part = parts["train"]
        if part.here is None:  # all ranks have all samples
            scaling = Scaling.fit(part.X, dtype, settings.scaling, part.weights)
        else:
            own = part.mine(team)
            scaling = Scaling.fit(own.X, dtype, settings.scaling, own.weights, team)
        task = cls(parts, scaling, classes, name, image, features, raw)
        task.augmentation(settings)  # refuses samples that are no images
        return task

    @classmethod
    def for_inputs(
        cls,
        X: ArrayLike | Tensor,
        classes: ArrayLike,
        settings: TrainSettings,
        image: Shape | None = None,
    ) -> "TrainingData":
        """What a network is made for before there is something to learn: inputs and classes."""
        inputs = check_rows(X, DTYPES[settings.dtype])
        _, known = encode_labels(classes, len(np.asarray(classes)))
        if image is not None and math.prod(image) != inputs.shape[1]:
            raise InputError(
                f"samples of {inputs.shape[1]} numbers are no images of shape {image}."
            )
        scaling = Scaling.fit(inputs, DTYPES[settings.dtype], settings.scaling)
        part = Subset(inputs, torch.zeros(len(inputs), dtype=torch.long))
        return cls({"train": part}, scaling, known, image=image)

    @property
    def n_features(self) -> int:
        """How many inputs a sample has."""
        return self.parts["train"].X.shape[1]

    def shape_for(self, plans: Sequence[LayerPlan]) -> Shape:
        """How the first layer takes a sample: as an image if it is a convolution."""
        return check_image(self.image) if plans and plans[0].kernel else (self.n_features,)

    def augmentation(self, settings: TrainSettings) -> CropFlip | None:
        """How its images are changed, if they are."""
        if settings.augment == "none":
            return None
        if self.image is None:
            raise InputError(f"augment={settings.augment!r} is for images, these are not.")
        return CropFlip(self.image)

    def whole(self, model: Any) -> Any:
        """The network that takes raw inputs: with features, ``model`` on their body."""
        if self.features is None:
            return model
        return model.on_body(self.features.body(self.scaling), self.features.scaling)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The fingerprint of each part, taken once: the state and the record need it."""
        return {name: part.digest() for name, part in self.parts.items()}

    @cached_property
    def raw_digests(self) -> dict[str, str]:
        """The same of what a body takes, if there is one."""
        return {name: part.digest() for name, part in self.raw.items()} or self.digests

    def probe(self, size: int, team: Team = ALONE) -> Tensor:
        """Some scaled training inputs, the same on all ranks."""
        some = self.parts["train"].sample(size)
        own = self.scaling.apply(some.X[:])
        return own if some.here is None else team.joined(own, some.here, len(some.y))


def known_part(
    X: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    classes: list[ClassLabel],
    n_features: int,
    dtype: torch.dtype,
) -> Subset:
    """Raw inputs and labels as a network scores them; a label it does not know is never right."""
    inputs = check_width(check_rows(X, dtype), n_features)
    return Subset(inputs, encode_known_labels(y, classes, len(inputs)))


def _cut(
    X: Any,
    y: ArrayLike | Tensor,
    test: Labelled | None,
    settings: TrainSettings,
    weights: ArrayLike | Tensor | None = None,
    team: Team = ALONE,
) -> tuple[dict[str, Subset], list[ClassLabel]]:
    """The parts of checked data, and the classes; the same rows are held out for the same y."""
    dtype = DTYPES[settings.dtype]
    if isinstance(X, Shards):
        codes, classes = encode_labels(y, len(X))
        mapped, here = X.of(team)
        whole = Subset(mapped, codes, None, here, X.digest)
    else:
        inputs = check_rows(X, dtype)
        codes, classes = encode_labels(y, len(inputs))
        whole = Subset(inputs, codes)
    if weights is not None:
        checked = check_weights(weights, len(codes))
        whole = replace(whole, weights=checked).rows(checked > 0)
    parts = _cut_validation(whole, settings)
    given = parts["train"].weights
    if given is not None:  # 1 on average, so that steps keep their size
        relative = given / given.max()  # first, so that the mean is finite
        weights = (relative / relative.mean()).to(dtype)
        least = torch.finfo(dtype).tiny  # a weight that is not 0 stays so
        parts["train"] = replace(parts["train"], weights=weights.clamp_min(least))
    if test is not None:
        parts["test"] = known_part(*test, classes, whole.X.shape[1], dtype)
    return parts, classes


def _cut_validation(part: Subset, settings: TrainSettings) -> dict[str, Subset]:
    if not settings.validation:
        return {"train": part}
    rest, cut = stratified_cut(part.y.numpy(), settings.validation, settings.seed)
    return {"train": part.rows(rest), "validation": part.rows(cut)}
