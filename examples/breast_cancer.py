"""Diagnose breast cancer, and find out which measurements the diagnosis needs.

A missed malignant sample is worse than a false alarm, so the two errors are reported apart:
sensitivity is the share of malignant samples that are found, specificity the share of benign
samples that are recognised as benign. The l2,0 price ``lam`` removes inputs that are not worth
their cost.

    python examples/breast_cancer.py
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from zeroone import ZeroOneClassifier


def main() -> tuple[float, float, list[str]]:
    """Return sensitivity, specificity and the names of the inputs that are left."""
    data = load_breast_cancer()
    malignant = (data.target == 0).astype(int)
    classifier = ZeroOneClassifier((64,), epochs=150, lam=0.26, class_weight="balanced")
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    predicted = cross_val_predict(classifier, data.data, malignant, cv=folds)
    counts = confusion_matrix(malignant, predicted).ravel()
    true_negative, false_positive, false_negative, true_positive = counts
    sensitivity = true_positive / (true_positive + false_negative)
    specificity = true_negative / (true_negative + false_positive)
    print(f"5-fold: sensitivity {100 * sensitivity:.1f}%, specificity {100 * specificity:.1f}%")

    first_layer = classifier.fit(data.data, malignant).network_.operators[0]
    norms = first_layer.linear.square().sum(dim=0).sqrt().numpy()  # of each input's column
    left = [str(data.feature_names[k]) for k in np.argsort(-norms) if norms[k] > 0]
    print(f"{len(left)} of {len(norms)} inputs and {classifier.n_active_[0]} of 64 units are left")
    print("largest weights:", ", ".join(left[:5]))
    return float(sensitivity), float(specificity), left


if __name__ == "__main__":
    main()
