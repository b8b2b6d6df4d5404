"""Small images of bars, and a backbone and layers that are trained on them."""

import numpy as np

from zeroone import Callback, TrainSettings
from zeroone.pretraining import PretrainingSettings, make_features, train_on_backbone

IMAGE = (1, 18, 18)
SMALL = PretrainingSettings("small", epochs=2, batch=20)
LAYERS = TrainSettings.from_options(hidden=(30, 20), epochs=3, batch=20, validation=0.2, seed=5)


def bars(n, seed):
    """Bytes: a bright bar at a random height, of a thickness that tells the class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    images = rng.integers(0, 60, (n, 18, 18))
    for image, kind in zip(images, y, strict=True):
        top = rng.integers(0, 12)
        image[top : top + 2 * kind + 1] += 150
    return images.reshape(n, -1).astype(np.uint8), y


def features_of(data, folder, pretraining=SMALL, settings=LAYERS, **more):
    given = {k: v for k, v in data.items() if k not in ("X", "y")}
    return make_features(data["X"], data["y"], pretraining, settings, folder, **given | more)


def train_both(data, out, settings=LAYERS, **more):
    given = {k: v for k, v in data.items() if k not in ("X", "y")}
    return train_on_backbone(data["X"], data["y"], SMALL, settings, out=out, **given | more)


class Interrupt(Callback):
    def __init__(self, after):
        self.after = after

    def on_iteration(self, entry, model):
        if entry["iteration"] == self.after:
            raise KeyboardInterrupt
