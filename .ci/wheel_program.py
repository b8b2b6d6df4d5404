"""The Python part of wheel_test.py: train, save, load and predict with the installed wheel."""

import csv
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import zeroone

OPTIONAL = ("matplotlib", "PIL", "onnx", "onnxruntime", "tensorboard", "lightning", "pandas")


def main() -> None:
    """Fit a classifier on an array, and write the same samples to samples.csv."""
    present = [name for name in OPTIONAL if find_spec(name)]
    assert not present, f"the environment should not have {present}"
    assert "site-packages" in zeroone.__file__, zeroone.__file__
    X = np.random.default_rng(0).normal(size=(400, 6))
    y = np.where(X[:, 0] + X[:, 1] > 0, "above", "below")
    classifier = zeroone.ZeroOneClassifier((32,), random_state=0).fit(X, y)
    assert classifier.score(X, y) > 0.9, classifier.score(X, y)
    classifier.network_.save("model.safetensors")
    assert (zeroone.load("model.safetensors").predict(X) == classifier.predict(X)).all()
    with Path("samples.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{k}" for k in range(6)), "kind"])
        writer.writerows([*x, label] for x, label in zip(X, y, strict=True))


if __name__ == "__main__":
    main()
