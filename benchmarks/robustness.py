r"""Robustness of 0/1 networks, and of ReLU and STE networks trained like them (claim C3).

    python benchmarks/robustness.py --folder build/robustness --json results/robustness.json \
        --page docs/robustness.md

Trains 784-256-256-10 with and without noise on the inputs, and attacks each network on 50 test
images of each class; see ``attacks.py`` and the page. A finished cell (data, seed, model) becomes a
line of ``cells.jsonl`` in the folder; the same command resumes. ``--no-run`` only writes the record
and the page from the cells, and with ``--json`` alone the page from the record.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import attacks
from benchmarks.attacks import Surrogate, Victim
from benchmarks.measure import finish
from benchmarks.robustness_page import page
from zeroone import TrainSettings, train
from zeroone.baselines.settings import BaselineSettings
from zeroone.data.load import load_data
from zeroone.training.baselines import train_baseline
from zeroone.utils.records import new_record

MODELS = ("bcd", "relu", "ste")
# Radii of the attacks, l-infinity and l2, and the noise in training: twice the larger radius.
PLANS: dict[str, dict[str, Any]] = {
    "mnist": {"radii": [0.05, 0.1], "l2": [1.0, 2.0], "noise": 0.2},
    "fashion-mnist": {"radii": [0.02, 0.05], "l2": [0.5, 1.0], "noise": 0.1},
}
LEVELS = [0.1, 0.2, 0.3, 0.5]  # of Gaussian noise on the whole test part
LARGE = 0.5  # a radius at which every network must fail
FEW = 100  # images that are tried there
PER_CLASS = 50
DRAWS = 100  # of noise in the ball and of corners
CRAFT = 100  # steps of pgd towards images that are shown to other networks
PROBE = 0.3  # of HopSkipJump, chosen on another seed: best for 0/1 networks, near it for others
TEMPERATURES = [0.0, 0.0, 1 / 3, 0.0, 1.0]  # of each restart of pgd, see restarts
QUERIES = {
    "square": [100, 300, 1000],
    "rays": [100, 300, 1000],
    "l2": [300, 1000, 2000],
}


def varied(steps: int) -> list[Surrogate]:
    """Return surrogates of random widths that take turns: no single one was best."""
    rng = np.random.default_rng(0)
    shapes = rng.choice(["sigmoid", "smooth"], steps)
    return [Surrogate(str(s), 0.02 * 25 ** rng.random()) for s in shapes]


def annealed(steps: int) -> list[Surrogate]:
    """Return a smooth network that becomes the 0/1 network."""
    return [Surrogate("smooth", 0.4 * 0.05 ** (k / steps)) for k in range(steps)]


def restarts(*, steps: bool, length: int) -> list[tuple[Sequence[Surrogate], float]]:
    """Return surrogates, and temperatures relative to the median margin, for each restart of pgd.

    ReLU has no surrogates, but as many restarts.
    """
    kinds: list[Sequence[Surrogate]] = [[Surrogate("window", 1.0)]] * len(TEMPERATURES)
    if steps:
        mixed = varied(length)
        kinds = [mixed, annealed(length), mixed[::-1], [Surrogate("sigmoid", 0.06)]]
        kinds += [[Surrogate("window", 0.3)]]
    return list(zip(kinds, TEMPERATURES, strict=True))


class Bench:
    """One data set with its images to attack, and a folder of trained networks."""

    def __init__(self, name: str, folder: Path, options: argparse.Namespace) -> None:
        self.name, self.options, self.plan = name, options, PLANS.get(name, PLANS["mnist"])
        self.folder = folder
        self.split = load_data(name)
        X, y = np.asarray(self.split.X_test[:]), np.asarray(self.split.y_test)
        rng = np.random.default_rng(0)
        rows = [rng.permutation(np.flatnonzero(y == k))[: options.per_class] for k in np.unique(y)]
        self.X_all, self.y_all = torch.from_numpy(X).float() / 255, torch.from_numpy(y).long()
        chosen = torch.from_numpy(np.concatenate(rows))
        self.X, self.y = self.X_all[chosen], self.y_all[chosen]

    def victim(self, kind: str, seed: int, noise: float) -> tuple[Victim, dict[float, Tensor]]:
        """Train a network, or read it; with images that are made to fool it, by radius."""
        sizes = f"{self.options.epochs}-{self.options.per_class}"
        path = self.folder / f"{self.name}-{kind}-{noise:g}-{seed}-{sizes}.pt"
        if path.exists():
            kept = torch.load(path)
        else:
            victim = self._train(kind, seed, noise)
            kept = {"victim": vars(victim), "crafted": self._craft(victim, seed)}
            temporary = path.with_suffix(".tmp")
            torch.save(kept, temporary)
            temporary.replace(path)
        return Victim(**kept["victim"]), kept["crafted"]

    def _train(self, kind: str, seed: int, noise: float) -> Victim:
        settings = TrainSettings.from_options(
            hidden=(256, 256), epochs=self.options.epochs, seed=seed, input_noise=noise
        )
        X, y = self.split.X, self.split.y
        if kind == "bcd":
            model: Any = train(X, y, settings, scores=False).network
        else:
            model, _ = train_baseline(X, y, BaselineSettings(activation=kind), settings)
        seen = torch.from_numpy(np.asarray(X[:2000])).float() / 255
        return Victim.of(model, seen, steps=kind != "relu")

    def _craft(self, victim: Victim, seed: int) -> dict[float, Tensor]:
        rng = torch.Generator().manual_seed(seed)
        temperature = median_margin(victim, self.X, self.y)
        return {
            radius: attacks.pgd(
                victim,
                self.X,
                self.y,
                radius,
                varied(CRAFT) if victim.steps else Surrogate("window", 1.0),
                temperature,
                CRAFT,
                rng,
                to_the_end=True,
            )[1]
            for radius in self.plan["radii"]
        }


def median_margin(victim: Victim, X: Tensor, y: Tensor) -> float:
    return float(attacks.margins(victim.scores(X), y).median().clamp_min(1e-6))


class Cell:
    """All attacks on one network. Images that it classifies wrongly count as fooled."""

    def __init__(self, bench: Bench, kind: str, seed: int, noise: float) -> None:
        self.bench, self.kind, self.seed, self.noise = bench, kind, seed, noise
        self.victim, _ = bench.victim(kind, seed, noise)
        self.wrong = self.victim.fooled(bench.X, bench.y)
        right = ~self.wrong
        self.X, self.y = bench.X[right], bench.y[right]
        self.rng = torch.Generator().manual_seed(1000 + seed)
        self.temperature = median_margin(self.victim, self.X, self.y)

    def error(self, fooled: Tensor) -> float:
        return float(self.wrong.sum() + fooled.sum()) / len(self.wrong)

    def measure(self) -> dict[str, Any]:
        """Run all attacks; return errors."""
        options = self.bench.options
        found: dict[str, Any] = {
            "test_error": float(
                self.victim.fooled(self.bench.X_all, self.bench.y_all).double().mean()
            ),
            "clean": self.error(torch.zeros(len(self.X))),
            "gaussian": self.gaussian(),
        }
        radii = self.bench.plan["radii"]
        rays = attacks.rays(self.victim, self.X, self.y, max(QUERIES["rays"]))
        found |= {"radii": {}, "queries": {"square": {}, "rays": {}}, "restarts": {}}
        smaller: dict[str, Tensor] = {}  # what was fooled in the smaller ball is in the larger one
        for radius in radii:
            fooled = self.without_gradients(radius) | self.transferred(radius)
            fooled["rays"] = rays.distance <= radius
            when = attacks.square(
                self.victim, self.X, self.y, radius, max(QUERIES["square"]), self.rng
            )
            fooled["square"] = when > 0
            fooled["naive"] = self.naive(radius)
            fooled["pgd"], course = self.descend(radius, self.X, self.y, options.steps)
            fooled = {name: some | smaller.get(name, some) for name, some in fooled.items()}
            smaller = fooled
            worst = torch.stack(list(fooled.values())).any(dim=0)
            errors = {name: self.error(some) for name, some in fooled.items()}
            name = f"{radius:g}"
            found["radii"][name] = errors | {"worst": self.error(worst)}
            found["restarts"][name] = [self.error(some) for some in course]
            found["queries"]["square"][name] = {
                str(q): self.error((when > 0) & (when <= q)) for q in QUERIES["square"]
            }
            found["queries"]["rays"][name] = {
                str(q): self.error(rays.after(q) <= radius) for q in QUERIES["rays"]
            }
        found["l2"] = self.decision_based()
        found["sanity"] = self.sanity(options.steps)
        return found

    def gaussian(self) -> dict[str, float]:
        """Measure the error of the whole test part in noise: the same for every network."""
        errors = {}
        for level in LEVELS:
            rng, wrong = torch.Generator().manual_seed(0), 0
            for X, y in zip(
                self.bench.X_all.split(2000), self.bench.y_all.split(2000), strict=True
            ):
                noise = torch.empty(X.shape).normal_(0, level, generator=rng)
                wrong += int(self.victim.fooled(X + noise, y).sum())
            errors[f"{level:g}"] = wrong / len(self.bench.y_all)
        return errors

    def without_gradients(self, radius: float) -> dict[str, Tensor]:
        draws = {"noise": attacks.noise_in_ball, "corners": attacks.corners}
        return {
            name: attacks.random_points(
                self.victim, self.X, self.y, draw(self.X, radius, self.rng), DRAWS
            )
            for name, draw in draws.items()
        }

    def transferred(self, radius: float) -> dict[str, Tensor]:
        """Show images that were made to fool the twins."""
        found = {}
        for kind in MODELS:
            if kind != self.kind:
                _, crafted = self.bench.victim(kind, self.seed, self.noise)
                shown = crafted[radius][~self.wrong]
                found[f"from {kind}"] = self.victim.fooled(shown, self.y)
        return found

    def naive(self, radius: float) -> Tensor:
        """Run pgd once, with the window that training has and a plain cross-entropy."""
        surrogate = Surrogate("window", 1.0)
        fooled, _ = attacks.pgd(
            self.victim, self.X, self.y, radius, surrogate, 1.0, CRAFT, self.rng
        )
        return fooled

    def descend(
        self, radius: float, X: Tensor, y: Tensor, steps: int
    ) -> tuple[Tensor, list[Tensor]]:
        """Run pgd with all restarts on what is left; return who is fooled, after each of them."""
        plans = restarts(steps=self.victim.steps, length=steps)
        fooled, course = torch.zeros(len(X), dtype=torch.bool), []
        for surrogates, relative in plans:
            left = (~fooled).nonzero()[:, 0]
            if len(left):
                fooled[left], _ = attacks.pgd(
                    self.victim,
                    X[left],
                    y[left],
                    radius,
                    surrogates,
                    relative * self.temperature,
                    steps,
                    self.rng,
                )
            course.append(fooled.clone())
        return fooled, course

    def decision_based(self) -> dict[str, dict[str, float]]:
        """Return the median l2 distance and errors at l2 radii, by queries."""
        other = (self.y[:, None] != self.y).float()
        start = self.X[torch.multinomial(other, 1, generator=self.rng)[:, 0]]
        search = attacks.hop_skip_jump(
            self.victim, self.X, self.y, start, max(QUERIES["l2"]), PROBE, self.rng
        )
        found = {}
        for queries in QUERIES["l2"]:
            distance = search.after(queries)
            everyone = torch.cat([torch.zeros(int(self.wrong.sum())), distance])
            errors = {f"{r:g}": self.error(distance <= r) for r in self.bench.plan["l2"]}
            found[str(queries)] = {"median": float(everyone.quantile(0.5)), **errors}
        return found

    def sanity(self, steps: int) -> float:
        """Return the share that pgd fools in a ball so large that every image can become grey."""
        few = torch.randperm(len(self.X), generator=self.rng)[:FEW]
        fooled, _ = self.descend(LARGE, self.X[few], self.y[few], steps)
        return float(fooled.double().mean())


def run(options: argparse.Namespace) -> None:
    """Measure all cells that are not in the file yet."""
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "cells.jsonl"
    settings, cells = measured_by(options), read(path)
    if any(cell["settings"] != settings for cell in cells):
        sys.exit(f"{path} holds cells with other settings: take another folder")
    done = {key(cell) for cell in cells}
    benches = {name: Bench(name, options.folder, options) for name in options.data}
    for seed in range(options.seeds):
        for name, bench in benches.items():
            for noise in (0.0, bench.plan["noise"]):
                for kind in MODELS:
                    if (name, seed, noise, kind) in done:
                        continue
                    started = time.process_time()
                    cell = new_record("robustness", settings, seed)
                    cell |= {"data": name, "noise": noise, "model": kind}
                    cell["result"] = Cell(bench, kind, seed, noise).measure()
                    cell["seconds"] = time.process_time() - started
                    append(path, cell)
                    worst = {r: e["worst"] for r, e in cell["result"]["radii"].items()}
                    print(
                        f"{name}, seed {seed}, noise {noise:g}, {kind}: {cell['seconds']:.0f} s, "
                        f"test error {cell['result']['test_error']:.4f}, worst {worst}",
                        flush=True,
                    )


def measured_by(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that decide results."""
    return {name: getattr(options, name) for name in ("epochs", "steps", "per_class")}


def key(cell: dict[str, Any]) -> tuple[str, int, float, str]:
    return cell["data"], cell["seed"], cell["noise"], cell["model"]


def read(path: Path) -> list[dict[str, Any]]:
    """Read finished cells; a line that a crash cut short does not count."""
    cells = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            cells.append(json.loads(line))
        except ValueError:
            continue
    return cells


def append(path: Path, cell: dict[str, Any]) -> None:
    """Add a line, on a line of its own even after one that a crash cut short."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    with path.open("a", encoding="utf-8") as file:
        start = "" if before.endswith("\n") or not before else "\n"
        file.write(start + json.dumps(cell) + "\n")


def summary(cells: Sequence[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Join cells to one record, with what made them said once."""
    wanted = [cell for cell in cells if cell["data"] in options.data]
    wanted.sort(key=lambda cell: (options.data.index(cell["data"]), *key(cell)[1:]))
    first = cells[0] if cells else new_record("robustness", measured_by(options), seed=0)
    shared = {name: value for name, value in first.items() if name not in VARYING}
    plans = {name: PLANS.get(name, PLANS["mnist"]) for name in options.data}
    fixed = {"draws": DRAWS, "queries": QUERIES, "restarts": len(TEMPERATURES)}
    return shared | {
        "commit": ", ".join(sorted({cell["commit"] for cell in [first, *cells]})),
        "settings": shared["settings"] | fixed,
        "seeds": options.seeds,
        "plans": plans,
        "cells": [{name: cell[name] for name in VARYING} for cell in wanted],
    }


VARYING = ("data", "seed", "noise", "model", "seconds", "result")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--folder", type=Path, help="of networks and cells (runs/robustness)")
    arguments.add_argument("--json", type=Path, help="write the record here")
    arguments.add_argument("--page", type=Path, help="write the page here")
    arguments.add_argument("--no-run", action="store_true", help="measure nothing")
    arguments.add_argument("--data", nargs="+", default=list(PLANS))
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--epochs", type=int, default=10)
    arguments.add_argument("--steps", type=int, default=250, help="of each of pgd's five restarts")
    arguments.add_argument("--per-class", type=int, default=PER_CLASS)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    if options.no_run and options.folder is None:
        record = json.loads(options.json.read_text(encoding="utf-8"))
    else:
        options.folder = options.folder or Path("runs/robustness")
        if not options.no_run:
            run(options)
        record = summary(read(options.folder / "cells.jsonl"), options)
        finish(record, options.json)
    if options.page:
        options.page.write_text(page(record), encoding="utf-8")


if __name__ == "__main__":
    main()
