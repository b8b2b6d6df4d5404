"""Classify images with a convolutional network whose hidden activations are all 0 or 1.

python examples/images.py
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from zeroone import ZeroOneClassifier, to_torch


def main() -> float:
    """Return the test error."""
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8)
    X, X_test, y, y_test = train_test_split(images, labels, random_state=0)
    # 16 filters of 3 x 3 with padding 1, pooled before the step; 32 filters; 64 dense units.
    layers = ("conv3x3:16:pad1:max2", "conv3x3:32:pad1", 64)
    classifier = ZeroOneClassifier(layers, image_shape=(1, 8, 8), epochs=30).fit(X, y)
    error = 1 - classifier.score(X_test, y_test)
    print(f"test error {100 * error:.2f}%, filters and units: {classifier.n_active_}")
    print(to_torch(classifier.network_))
    return error


if __name__ == "__main__":
    main()
