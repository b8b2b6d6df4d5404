"""Diagnosis on the breast-cancer data, the paper's first outlook: what is missed, what is needed.

Malignant is what must not be missed, so errors are given for each kind: sensitivity is the share of
malignant samples that are found, specificity that of benign ones that are left alone. l2,0 removes
inputs whose columns are not worth their price: which measurements are needed at all?

    python examples/breast_cancer.py
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from zeroone import ZeroOneClassifier


def main() -> tuple[float, float, list[str]]:
    """Give sensitivity, specificity and the names of the inputs that survived."""
    data = load_breast_cancer()
    malignant = (data.target == 0).astype(int)
    classifier = ZeroOneClassifier((64,), epochs=150, lam=0.2, class_weight="balanced")
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    predicted = cross_val_predict(classifier, data.data, malignant, cv=folds)
    (spared, alarms), (missed, found) = confusion_matrix(malignant, predicted)
    sensitivity, specificity = found / (found + missed), spared / (spared + alarms)
    print(f"5-fold: sensitivity {100 * sensitivity:.1f}%, specificity {100 * specificity:.1f}%")
    network = classifier.fit(data.data, malignant).network_
    weights = network.operators[0].linear
    sizes = weights.square().sum(dim=0).sqrt().numpy()
    left = [str(data.feature_names[k]) for k in np.argsort(-sizes) if sizes[k] > 0]
    print(f"{len(left)} of {len(sizes)} inputs and {classifier.n_active_[0]} of 64 units are left")
    print("most weight:", ", ".join(left[:5]))
    return float(sensitivity), float(specificity), left


if __name__ == "__main__":
    main()
