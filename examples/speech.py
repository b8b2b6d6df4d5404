"""Recognise spoken words with a network whose hidden activations are all 0 or 1; export it to C.

    python examples/make_speech.py speech    # ten words, spoken by espeak-ng
    python examples/speech.py speech         # or the folder of Google's Speech Commands

A recording of a second becomes an image of bytes: 32 bands of frequencies by 32 moments, each with
the decibels above the noise. From there on, words are classified as any other images. The lists in
the folder say which recordings are held out; other speakers than those of the training speak them.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.io import wavfile

from zeroone import ZeroOneClassifier, quantise
from zeroone.deploy import IntegerNetwork

WORDS = "yes no up down left right on off stop go"
RATE, BANDS, MOMENTS, WINDOW = 16_000, 32, 32, 1024
LOUDEST = 30  # decibels above the noise, the brightest that an image can show
# Filters over time and frequency, pooled before the step; then 128 units that see all of them.
LAYERS = ("conv3x3:32:pad1:max2", "conv3x3:64:pad1:max2", "conv3x3:64:pad1:average2", 128)
Images = NDArray[np.uint8]


def mel_filters() -> NDArray[np.float64]:
    """Return the weight of each frequency of a spectrum in each band, (BANDS, frequencies).

    Bands are triangles that overlap by half. They are equally wide on the mel scale, by which
    listeners judge the distance of two tones.
    """
    mel_of = lambda hertz: np.log1p(hertz / 700)  # noqa: E731
    corners = np.linspace(mel_of(60), mel_of(7600), BANDS + 2)
    mels = mel_of(np.fft.rfftfreq(WINDOW, 1 / RATE))
    low, peak, high = (corners[k : k + BANDS, None] for k in range(3))
    return np.clip(np.minimum((mels - low) / (peak - low), (high - mels) / (high - peak)), 0, None)


def spectrogram(sound: NDArray[np.int16], filters: NDArray[np.float64]) -> Images:
    """Turn a second of sound into an image of bytes: bands down, moments across.

    A word takes up a part of the second, so the quietest quarter of a band shows its noise.
    """
    second = np.zeros(RATE + WINDOW)
    second[WINDOW // 2 :][: len(sound[:RATE])] = sound[:RATE]
    starts = np.arange(MOMENTS) * RATE // MOMENTS
    frames = second[starts[:, None] + np.arange(WINDOW)] * np.hanning(WINDOW)
    power = filters @ np.abs(np.fft.rfft(frames)).T ** 2
    decibels = 10 * np.log10(np.maximum(power, 1e-10))
    noise = np.quantile(decibels, 0.25, axis=1, keepdims=True)
    return np.clip(255 * (decibels - noise) / LOUDEST, 0, 255).astype(np.uint8)


def read_words(folder: Path) -> dict[str, tuple[Images, NDArray[np.str_]]]:
    """Return the images and words of the recordings for train, validation and test.

    Raises:
        SystemExit: the folder holds no recordings, or one of another kind.
    """
    paths = [path for word in WORDS.split() for path in sorted((folder / word).glob("*.wav"))]
    if not paths:
        sys.exit(f"{folder} has no recordings: run python examples/make_speech.py {folder}.")
    parts = np.full(len(paths), "train", dtype="<U10")
    names = [path.relative_to(folder).as_posix() for path in paths]
    for part, file in (("validation", "validation_list.txt"), ("test", "testing_list.txt")):
        held_out = (folder / file).read_text(encoding="utf-8").split()
        parts[np.isin(names, held_out)] = part
    images, filters = [], mel_filters()
    for path in paths:
        rate, sound = wavfile.read(path)
        if rate != RATE or sound.ndim != 1:
            sys.exit(f"{path} is not a mono recording at {RATE:,} Hz.")
        images.append(spectrogram(sound, filters))
    X, y = np.stack(images), np.array([path.parent.name for path in paths])
    return {part: (X[parts == part], y[parts == part]) for part in ("train", "validation", "test")}


def main(folder: Path, epochs: int = 30) -> tuple[float, IntegerNetwork]:
    """Train, and write speech.c; return the test error and the network in integers."""
    parts = read_words(folder)
    X, y = (np.concatenate(both) for both in zip(parts["train"], parts["validation"], strict=True))
    X_test, y_test = parts["test"]
    print(f"{len(y)} recordings to train on, {len(y_test)} of other voices to test")
    settings = {"epochs": epochs, "batch": 64, "random_state": 0, "verbose": True}
    classifier = ZeroOneClassifier(LAYERS, image_shape=(BANDS, MOMENTS), **settings)
    error = 1 - classifier.fit(X, y).score(X_test, y_test)
    print(f"test error {100 * error:.2f}%")
    network = quantise(classifier.network_)
    wrong = network.predict(X_test.reshape(len(y_test), -1)) != y_test
    print(f"with int8 weights {100 * wrong.mean():.2f}%")
    print(*network.export("c", Path("speech.c")), sep="\n")
    return error, network


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "speech"))
