"""Draw the pictures of the guides from real trainings.

    python benchmarks/pictures.py --out docs/images

``flips.png``: pre-activations of one hidden unit before and after ten batches on digits, and which
samples cross the threshold. ``filters.png``: the first filters of a 0/1 convolution on MNIST, and
the bits that they make of some digits.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from zeroone import TrainSettings, train
from zeroone.data.load import load_data
from zeroone.nn import Step
from zeroone.optim import BCD

BATCHES, FILTERS, SAMPLES = 10, 12, 20_000


def draw_flips(path: Path) -> None:
    """Follow the pre-activations of the unit that flips most."""
    torch.manual_seed(0)
    X, y = (torch.tensor(part) for part in load_data("digits").everything)
    X = (X / 16 - 0.5).float()
    model = nn.Sequential(
        nn.Linear(64, 128), Step(), nn.Linear(128, 128), Step(), nn.Linear(128, 10)
    )
    bcd = BCD(model, total_steps=300)

    def learn(batches: int) -> None:
        for rows in torch.randint(len(X), (batches, 256)):
            bcd.zero_grad()
            cross_entropy(model(X[rows]), y[rows]).backward()
            bcd.step()

    def pre_activations() -> Tensor:
        with torch.no_grad():
            U: Tensor = model[:3](X)
        return U / U.std(dim=0)

    learn(100)
    before = pre_activations()
    learn(BATCHES)
    after = pre_activations()
    crossed = (before > 0) != (after > 0)
    unit = int(crossed.float().mean(dim=0).argmax())
    b, a, flips = before[:, unit], after[:, unit], crossed[:, unit]
    figure, axis = plt.subplots(figsize=(5.2, 4.4), layout="constrained")
    axis.axvspan(-1, 1, color="0.93")
    axis.plot(b[~flips], a[~flips], ".", color="0.55", markersize=3, label="keeps its bit")
    axis.plot(b[flips], a[flips], ".", color="C3", markersize=4, label="flips")
    axis.axhline(0, color="0.2", linewidth=0.8)
    axis.axvline(0, color="0.2", linewidth=0.8)
    axis.set(xlabel="pre-activation before, in standard deviations")
    axis.set(ylabel=f"after {BATCHES} batches", xlim=(-3, 3), ylim=(-3, 3))
    axis.set_title(f"One hidden unit, {len(X):,} digits: {100 * flips.float().mean():.1f}% flip")
    axis.legend(fontsize=8, loc="upper left")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_filters(path: Path) -> None:
    """Show kernels of a trained convolution and their bits for three digits."""
    data = load_data("mnist")
    settings = TrainSettings.from_options(
        hidden=("conv5x5:16:max2", "conv5x5:32:max2", 128), epochs=3, seed=0
    )
    run = train(data.X[:SAMPLES], data.y[:SAMPLES], settings, image=data.shape)
    kernels = run.network.layers[0].operator.linear.reshape(-1, 5, 5).numpy()
    images = [int(np.flatnonzero(data.y == digit)[0]) for digit in (2, 5, 8)]
    bits = run.network.bits(data.X[images])[0].numpy()
    rows = 1 + len(images)
    figure, axes = plt.subplots(rows, 1 + FILTERS, figsize=(9.6, 3.2), layout="constrained")
    for column in range(FILTERS):
        most = np.abs(kernels[column]).max()
        axes[0, column + 1].imshow(kernels[column], cmap="RdBu", vmin=-most, vmax=most)
        for row in range(len(images)):
            axes[row + 1, column + 1].imshow(bits[row, column], cmap="gray_r", vmin=0, vmax=1)
    for row, image in enumerate(images):
        axes[row + 1, 0].imshow(data.X[image].reshape(28, 28), cmap="gray_r")
    for axis in axes.flat:
        axis.set_axis_off()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, default=Path("docs/images"))
    mpl.use("Agg")
    folder = arguments.parse_args().out
    draw_flips(folder / "flips.png")
    draw_filters(folder / "filters.png")
    print(f"{folder}: flips.png, filters.png")


if __name__ == "__main__":
    main()
