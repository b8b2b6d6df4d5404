"""The data of a training run: checked, encoded, split into parts, fingerprinted."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.data.shards import Shards
from zeroone.data.splits import stratified_cut
from zeroone.data.torch_datasets import Samples, is_torch_data, read_samples
from zeroone.nn.backbones import Backbone
from zeroone.nn.heads import HEADS, Head
from zeroone.nn.inputs import check_rows, check_weights, check_width
from zeroone.nn.labels import ClassLabel
from zeroone.nn.layers import check_image
from zeroone.nn.network import Network
from zeroone.nn.operators import Shape
from zeroone.nn.scaling import Scaling
from zeroone.nn.targets import Targets, TargetScaling
from zeroone.training.augment import AUGMENTATIONS, Augment, name_of
from zeroone.training.settings import DTYPES, TrainSettings
from zeroone.training.stochastic_settings import LEAST_BATCH
from zeroone.training.text_progress import Lines
from zeroone.utils.checks import InputError
from zeroone.utils.memmap import Rows, select_rows, split_rows
from zeroone.utils.parallel import ALONE, Share, Team
from zeroone.utils.records import source

BLURRED = 0.01  # of a target's deviation, the most that rounding its mean may cost
Labelled = tuple[ArrayLike | Tensor, ArrayLike | Tensor]
Arrays = tuple[Any, Any, TrainSettings, Any, Shape | None]  # X, y, settings, test part, image


@dataclass(frozen=True)
class Subset:
    """Some samples: checked raw inputs and encoded targets, such as class numbers.

    Of sharded data, ``here`` holds the numbers of this rank's samples in rising order. ``X`` has
    the inputs of just these, ``y`` and ``sample_weight`` belong to the samples of all ranks.
    """

    X: Rows
    y: Tensor
    sample_weight: Tensor | None = None  # how often each sample counts, 1 on average
    here: Tensor | None = None
    written: str = ""  # the fingerprint of sharded inputs, taken when they were written
    views: tuple[Rows, ...] = ()  # other versions of X, for training

    def rows(self, rows: Tensor | NDArray[Any]) -> "Subset":
        """Select samples by their numbers or by a mask."""
        numbers = torch.as_tensor(rows)
        if numbers.dtype == torch.bool:
            numbers = numbers.nonzero().flatten()
        weight = None if self.sample_weight is None else self.sample_weight[numbers]
        written = self.written
        if written:
            written = hashlib.sha256(written.encode() + numbers.numpy().tobytes()).hexdigest()
        places, here = self._held(numbers)
        views = tuple(select_rows(view, places) for view in self.views)
        return Subset(select_rows(self.X, places), self.y[numbers], weight, here, written, views)

    def _held(self, numbers: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the rows of X with those samples that are here, and where in ``numbers`` they are.

        The latter is None if all samples are here.
        """
        if self.here is None:
            return numbers, None
        places = torch.searchsorted(self.here, numbers)
        held = (torch.searchsorted(self.here, numbers, right=True) > places).nonzero().flatten()
        return places[held], held

    def share(self, numbers: Tensor, team: Team) -> Share:
        """Return a rank's share of a batch: the samples it holds, or its slice if all hold all."""
        if team.size > 1 and self.here is None:
            return Share(len(numbers), torch.arange(len(numbers))[team.slice(len(numbers))])
        return Share(len(numbers), self._held(numbers)[1])

    def inputs(self, numbers: Tensor, epoch: int = 0) -> Tensor:
        """Return the inputs of samples that this rank holds, in the version of an epoch."""
        X = (self.X, *self.views)[epoch % (1 + len(self.views))]
        return X[self._held(numbers)[0]]

    def mine(self, team: Team) -> "Subset":
        """Return a rank's samples, whose numbers are ``own_rows``."""
        return self if team.size == 1 else self.rows(self.own_rows(team))

    def own_rows(self, team: Team) -> Tensor:
        """Return the numbers of a rank's samples."""
        mine = team.slice(len(self.y))
        return torch.arange(mine.start, mine.stop) if self.here is None else self.here

    def sample(self, size: int) -> "Subset":
        """Return at most ``size`` samples, evenly spaced."""
        if len(self.y) <= size:
            return self
        return self.rows(torch.linspace(0, len(self.y) - 1, size).long())

    @cached_property
    def digest(self) -> str:
        """A fingerprint of the samples and targets, in their order."""
        digest = hashlib.sha256(self.written.encode())
        for rows in () if self.written else split_rows(self.X, 4096):
            digest.update(rows.numpy().tobytes())
        digest.update(self.y.numpy().tobytes())
        if self.sample_weight is not None:
            digest.update(self.sample_weight.numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Features:
    """A network with a trained backbone, and the backbone's outputs for all inputs."""

    network: Network
    train: NDArray[Any]
    test: NDArray[Any] | None
    record: dict[str, Any]  # of the pretraining
    views: Sequence[NDArray[Any]] = ()  # of augmented versions of the training inputs

    @property
    def summary(self) -> dict[str, Any]:
        """What the record of a run on these features says about the pretraining."""
        summary = {name: self.record[name] for name in ("settings", "seed", "n_iter", "result")}
        return summary | ({"views": len(self.views)} if self.views else {})


@dataclass(frozen=True)
class TrainingData:
    """What a run learns from, and its settings."""

    settings: TrainSettings
    parts: dict[str, Subset]  # train and, if there are any, validation and test
    scaling: Scaling
    classes: list[ClassLabel]  # or the labels of other outputs
    name: str | None = None
    image: Shape | None = None  # channels, height, width of a sample that is an image
    features: Features | None = None  # of a backbone: the parts hold these as inputs
    raw: dict[str, Subset] = field(default_factory=dict)  # with features: parts with raw inputs
    target_scaling: TargetScaling | None = None  # which the parts' targets have undergone

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
        sample_weight: ArrayLike | Tensor | None = None,
        team: Team = ALONE,
        **known: Any,
    ) -> "TrainingData":
        """Check raw data, hold out the validation part, fit the scaling on the rest.

        The arguments are those of ``train``. Samples of weight 0 are left out. The ranks must have
        the same data and settings, and know the same about all else.
        """
        if features is not None and sample_weight is not None:
            raise InputError("layers on a backbone take no weights of samples.")
        if features is not None and settings.augment != "none":
            raise InputError("features are computed once: augment is for the backbone's training.")
        with team.agree() as facts:
            parts, classes, target_scaling = _split(X, y, test, settings, sample_weight, team)
            if team.size > 1:
                known |= {"image": image, "classes": classes, "shards": getattr(X, "sizes", None)}
                facts.update(settings.flat() | known | _fingerprints(parts))
        raw: dict[str, Subset] = {}
        if features is not None:
            made = None
            if test is not None and features.test is not None:
                made = (features.test, test[1])
            raw, image = parts, None
            parts, *_ = _split(features.train, y, made, settings, views=features.views)
        part, sharing = parts["train"], ALONE
        if part.here is not None:  # otherwise every rank has all samples
            part, sharing = part.mine(team), team
        scaling = fit_scaling(part.X, settings, image, part.sample_weight, sharing)
        task = cls(settings, parts, scaling, classes, name, image, features, raw, target_scaling)
        _ = task.augmentation  # raises an error for samples that are not images
        return task

    @property
    def n_features(self) -> int:
        """The number of inputs of a sample."""
        return self.parts["train"].X.shape[1]

    @property
    def shape(self) -> Shape:
        """The shape in which the first layer takes a sample: convolutions take images."""
        plans = self.settings.plans
        return check_image(self.image) if plans and plans[0].kernel else (self.n_features,)

    @property
    def augmentation(self) -> Augment | None:
        """The augmentation of the training images, if there is one."""
        given = self.settings.augment
        function = AUGMENTATIONS[given] if isinstance(given, str) else given
        if function is None:
            return None
        if self.image is None:
            raise InputError(f"augment={name_of(given)!r} is for images, these are not.")
        return Augment(function, self.image)

    def whole(self, model: Any) -> Any:
        """Return the network that takes raw inputs: with features, ``model`` on its backbone."""
        if self.features is None:
            return model
        trained = self.features.network
        assert trained.backbone is not None
        name, image, layers = trained.backbone.name, trained.backbone.image, trained.backbone.layers
        backbone = Backbone(name, image, layers, model.scaling)
        return model.on_backbone(backbone, trained.scaling)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The fingerprint of each part, for the state and the record."""
        return {name: part.digest for name, part in self.parts.items()}

    @cached_property
    def raw_digests(self) -> dict[str, str]:
        """The fingerprint of each part with the raw inputs."""
        return {name: part.digest for name, part in self.raw.items()} or self.digests

    def probe(self, size: int, team: Team = ALONE) -> Tensor:
        """Return some scaled training inputs, the same on all ranks."""
        some = self.parts["train"].sample(size)
        own = self.scaling.apply(some.X[:])
        return own if some.here is None else team.joined(own, some.here, len(some.y))


def fit_scaling(
    X: Rows,
    settings: TrainSettings,
    image: Shape | None,
    weights: Tensor | None = None,
    team: Team = ALONE,
) -> Scaling:
    """Fit the scaling of raw inputs; below a convolution, pixels share the centre of a channel."""
    if image is not None and math.prod(image) != X.shape[1]:
        raise InputError(f"samples of {X.shape[1]} numbers are no images of shape {image}.")
    plans = settings.plans
    channels = image[0] if image is not None and plans and plans[0].kernel else None
    dtype, bits = DTYPES[settings.dtype], settings.input_bits or 8
    fitted = Scaling.fit(X, dtype, settings.scaling, weights, team, channels, bits)
    return fitted if settings.augment == "none" else replace(fitted, constant=None)


def known_part(
    X: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    classes: list[ClassLabel],
    n_features: int,
    dtype: torch.dtype,
    targets: Targets = Head.targets,
) -> Subset:
    """Check inputs and targets for a network to score; an unknown label always counts as wrong."""
    inputs = check_width(check_rows(X, dtype), n_features)
    return Subset(inputs, targets.encode_known(y, classes, len(inputs)))


def _fingerprints(parts: dict[str, Subset]) -> dict[str, Any]:
    """Return what ranks must have in common: data, the package's code, torch."""
    facts = {f"{name} samples": len(part.y) for name, part in parts.items()}
    digests = {f"{name} data": part.digest for name, part in parts.items()}
    return facts | digests | {"code of zeroone": source(), "torch": torch.__version__}


def _split(
    X: Any,
    y: ArrayLike | Tensor,
    test: Labelled | None,
    settings: TrainSettings,
    sample_weight: ArrayLike | Tensor | None = None,
    team: Team = ALONE,
    views: Sequence[Any] = (),
) -> tuple[dict[str, Subset], list[ClassLabel], TargetScaling | None]:
    """Check data; return its parts, the classes and how y is scaled.

    The same y holds out the same rows.
    """
    dtype, targets = DTYPES[settings.dtype], HEADS[settings.head].targets
    if isinstance(X, Shards):
        codes, classes = targets.encode(y, len(X))
        mapped, here = X.of(team)
        whole = Subset(mapped, codes, None, here, X.digest)
    else:
        inputs = check_rows(X, dtype)
        codes, classes = targets.encode(y, len(inputs))
        whole = Subset(inputs, codes, views=tuple(check_rows(view, dtype) for view in views))
    if sample_weight is not None:
        checked = check_weights(sample_weight, len(codes))
        whole = replace(whole, sample_weight=checked).rows(checked > 0)
    parts = {"train": whole}
    if settings.validation:
        strata = targets.strata(whole.y).numpy()
        rest, cut = stratified_cut(strata, settings.validation, settings.seed)
        parts = {"train": whole.rows(rest), "validation": whole.rows(cut)}
    given = parts["train"].sample_weight
    if given is not None:  # 1 on average, so that steps keep their size
        relative = given / given.max()  # first, so that the mean is finite
        weight = (relative / relative.mean()).to(dtype)
        least = torch.finfo(dtype).tiny  # no weight may round to 0
        parts["train"] = replace(parts["train"], sample_weight=weight.clamp_min(least))
    if test is not None:
        parts["test"] = known_part(*test, classes, whole.X.shape[1], dtype, targets)
    part = parts["train"]
    scaling = None
    if targets.are_numbers:
        scaling = TargetScaling.fit(part.y, part.sample_weight, centred=settings.bias)
    parts = {name: replace(x, y=as_learned(x.y, scaling, dtype)) for name, x in parts.items()}
    return parts, classes, scaling


def as_learned(y: Tensor, scaling: TargetScaling | None, dtype: torch.dtype) -> Tensor:
    """Return encoded targets as a network learns them: scaled, in its dtype; class numbers stay."""
    if scaling is not None:
        blurred = scaling.centre.abs() * torch.finfo(dtype).eps > BLURRED * scaling.scale
        for column in blurred.nonzero().flatten()[:1]:
            raise InputError(
                f"y varies by {scaling.scale[column]:.3g} around {scaling.centre[column]:.3g}, too "
                f"little for {dtype}: subtract a constant from y, or train in float64."
            )
        y = scaling.apply(y)
    return y.to(dtype) if y.is_floating_point() else y


def as_arrays(X: Any, y: Any, settings: TrainSettings, test: Any, image: Shape | None) -> Arrays:
    """Read data sets of torch into arrays; a loader may set the size of batches."""
    if is_torch_data(test):
        read = _read(test, "reading test data")
        test = (read.X, read.y)
    if not is_torch_data(X):
        if y is None:
            raise InputError("training needs labels, y, unless X is a data set of torch.")
        return X, y, settings, test, image
    if y is not None:
        raise InputError("a data set has labels of its own: train(dataset, None, settings).")
    read, s = _read(X, "reading data"), settings.stochastic
    if read.batch is not None and s.batch is None and read.batch >= LEAST_BATCH:
        n = len(read.y) - math.ceil(settings.validation * len(read.y))
        settings = replace(settings, stochastic=replace(s, batch=min(read.batch, n)))
    return read.X, read.y, settings, test, image or read.image


def _read(data: Any, label: str) -> Samples:
    """Read a data set; a line appears if that takes longer than half a minute."""
    progress = Lines(label)
    progress.on_start(0, 1)
    return read_samples(data, lambda done, total: progress.on_batch(1, done, total))
