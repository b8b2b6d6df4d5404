"""The two real data sets that come inside scikit-learn: no download, no network."""

from zeroone.checks import one_of
from zeroone.data.arrays import Split

EMBEDDED = ("digits", "breast-cancer")
TEST_SHARE = 0.2
SPLIT_SEED = 0  # one fixed split, so that every run reports on the same test samples


def load_embedded(name: str) -> Split:
    """One of ``EMBEDDED``, with a stratified fifth as its test part."""
    one_of("data set", name, EMBEDDED)
    from sklearn.datasets import load_breast_cancer, load_digits

    loader = load_digits if name == "digits" else load_breast_cancer
    X, y = loader(return_X_y=True)
    return split(name, X, y, TEST_SHARE, SPLIT_SEED)


def split(name: str, X: object, y: object, share: float, seed: int) -> Split:
    """Cut a stratified test part off."""
    from sklearn.model_selection import train_test_split

    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=share, random_state=seed, stratify=y
    )
    return Split(name, X_train, y_train, X_test, y_test)
