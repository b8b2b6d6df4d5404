"""Classify handwritten digits: train, save, load, predict.

python examples/digits.py
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from zeroone import ZeroOneClassifier, load


def main() -> float:
    """Return the test error."""
    X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
    # keep=0.5 removes half of the hidden units while the network trains.
    classifier = ZeroOneClassifier(hidden=(128, 128), epochs=40, keep=0.5, random_state=0)
    classifier.fit(X, y)
    error = 1 - classifier.score(X_test, y_test)
    print(f"test error {100 * error:.2f}%, units left in each layer: {classifier.n_active_}")

    classifier.network_.save("digits.safetensors")
    network = load("digits.safetensors")
    print("predicted:", network.predict(X_test[:5]), "true:", y_test[:5])
    first_layer = network.bits(X_test[:1])[0][0]
    print(f"the first image turns on {int(first_layer.sum())} of {len(first_layer)} units")
    return error


if __name__ == "__main__":
    main()
