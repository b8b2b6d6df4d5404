"""The two data sets that come with scikit-learn: no download, no network."""

from dataclasses import dataclass
from pathlib import Path

from zeroone.data.registry import DataSet, register_data_set
from zeroone.data.splits import Split, stratified_cut

TEST_SHARE = 0.2
SPLIT_SEED = 0  # one fixed split, so that every run reports on the same test samples


@dataclass(frozen=True)
class Embedded(DataSet):
    """A data set of scikit-learn, with a stratified fifth as its test part."""

    name: str
    loader: str  # the function of sklearn.datasets
    shape: tuple[int, int, int] | None = None

    def load(self, data_dir: Path | None = None) -> Split:  # noqa: ARG002
        """Load the data set from scikit-learn."""
        from sklearn import datasets

        bunch = getattr(datasets, self.loader)()
        X, y = bunch.data, bunch.target
        rest, test = stratified_cut(y, TEST_SHARE, SPLIT_SEED)
        names = None if self.shape else tuple(map(str, bunch.feature_names))
        return Split(self.name, X[rest], y[rest], X[test], y[test], self.shape, feature_names=names)

    def place(self, data_dir: Path | None = None) -> str:  # noqa: ARG002
        """Name the package that holds the data."""
        return "scikit-learn"


register_data_set(Embedded("digits", "load_digits", (1, 8, 8)))
register_data_set(Embedded("breast-cancer", "load_breast_cancer"))
