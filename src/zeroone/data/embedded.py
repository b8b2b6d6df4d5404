"""The two real data sets that come inside scikit-learn: no download, no network."""

from zeroone.data.splits import Split, stratified_cut
from zeroone.utils.checks import one_of

EMBEDDED = ("digits", "breast-cancer")
TEST_SHARE = 0.2
SPLIT_SEED = 0  # one fixed split, so that every run reports on the same test samples


def load_embedded(name: str) -> Split:
    """One of ``EMBEDDED``, with a stratified fifth as its test part."""
    one_of("data set", name, EMBEDDED)
    from sklearn.datasets import load_breast_cancer, load_digits

    loader = load_digits if name == "digits" else load_breast_cancer
    bunch = loader()
    X, y = bunch.data, bunch.target
    rest, test = stratified_cut(y, TEST_SHARE, SPLIT_SEED)
    shape = (1, 8, 8) if name == "digits" else None
    names = None if name == "digits" else tuple(map(str, bunch.feature_names))
    return Split(name, X[rest], y[rest], X[test], y[test], shape, feature_names=names)
