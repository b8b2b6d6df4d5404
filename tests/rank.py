"""One of several processes that train together, started by tests: jobs in, weights out."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from torch import distributed

from zeroone import TrainSettings, train
from zeroone.data.load import load_data
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network
from zeroone.nn.scaling import Scaling
from zeroone.pretraining import PretrainingSettings, train_on_backbone
from zeroone.training import training_data
from zeroone.training.stochastic_settings import StochasticSettings
from zeroone.training.trainers import BCDTrainer
from zeroone.utils.checks import InputError
from zeroone.utils.parallel import ALONE, Share, Team
from zeroone.utils.records import source


def batches(team, job):
    """Batches of digits, cut by ownership of the samples: uneven parts, some empty."""
    digits = load_data("digits")
    dtype = torch.float64
    X, y = torch.from_numpy(digits.X).to(dtype), torch.from_numpy(digits.y)
    scaling = Scaling.fit(X, dtype)
    plans = [LayerPlan.parse(layer) for layer in job["hidden"]]
    shape = (1, 8, 8) if plans[0].kernel else (64,)
    network = Network.build(shape, plans, 10, SoftmaxCE(), seed=1, dtype=dtype, scaling=scaling)
    settings = StochasticSettings(**job["settings"])
    trainer = BCDTrainer(network, settings, job["batches"], team=team)
    cuts = torch.tensor({1: [], 2: [0.3], 4: [0.1, 0.45, 0.5]}[team.size])
    owner = torch.searchsorted(cuts * len(y), torch.arange(len(y)), right=True)
    heavy = torch.rand(len(y), generator=torch.Generator().manual_seed(0), dtype=dtype) * 2
    for k in range(job["batches"]):
        rng = torch.Generator().manual_seed(k)
        rows = torch.randperm(len(y), generator=rng)[: job["batch"]]
        places = (owner[rows] == team.rank).nonzero().flatten()
        share = Share(len(rows), places) if team.size > 1 else None
        mine = rows[places] if team.size > 1 else rows
        weights = heavy[mine] if job.get("weighted") else None
        trainer.update(scaling.apply(X[mine]), y[mine], rng, weights, share)
    return {f"{i}": op.weight for i, op in enumerate(trainer.model.operators)}


def nan(split):
    X = split.X.copy()
    X[5, 5] = np.nan
    return {"X": X}


CHANGES = {
    "X": lambda split: {"X": split.X + (np.arange(len(split.X)) == 7)[:, None]},
    "y": lambda split: {"y": np.where(np.arange(len(split.y)) == 7, 3, split.y)},
    "rows": lambda split: {"X": split.X[1:], "y": split.y[1:]},
    "classes": lambda split: {"y": split.y + 1, "X_test": None, "y_test": None},
    "test": lambda split: {"y_test": split.y_test[::-1]},
    "nan": nan,
    "code": lambda _split: {},
}


def trained(team, job):
    """A whole training, as the command does it."""
    is_last = team.size > 1 and team.rank == team.size - 1
    otherwise = job.get("on_last", {}) if is_last else {}
    split = load_data(otherwise.get("data", job["data"]))
    if "change" in otherwise:
        split = replace(split, **CHANGES[otherwise["change"]](split))
    settings = TrainSettings.from_options(**job["options"] | otherwise.get("options", {}))
    out = Path(job["out"]) if "out" in job else None
    known = {"test": split.test, "image": split.shape, "team": team}
    known |= otherwise.get("arguments", {})
    is_copy = otherwise.get("change") == "code"
    training_data.source = (lambda: "of another copy") if is_copy else source
    if "pretraining" in job:
        backbone = PretrainingSettings(**job["pretraining"] | otherwise.get("pretraining", {}))
        out = Path(f"{out}-{team.size}")  # each number of ranks trains its own
        run = train_on_backbone(split.X, split.y, backbone, settings, out=out, **known)
    else:
        resume = job.get("resume", False)
        run = train(split.X, split.y, settings, out=out, resume=resume, **known)
    found = {f"{i}": op.weight for i, op in enumerate(run.network.operators)}
    errors = [
        entry[name]
        for entry in run.record["history"]
        for name in sorted(entry)
        if name.endswith("_error") and entry[name] is not None
    ]
    return found | {"errors": torch.tensor(errors)}


def work(rank, size, meeting, out, jobs):
    """Do the jobs; of each the weights go into a file."""
    torch.set_num_threads(1)
    team = ALONE
    if size > 1:
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{meeting}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=100),
        )
    for name, job in jobs.items():
        if size > 1:
            team = Team(rank, size)
        try:
            made = (batches if "batches" in job else trained)(team, job)
        except InputError as error:
            made = {"refusal": str(error)}
        torch.save(made, Path(out) / f"{name}-{size}-{rank}.pt")
    if size > 1:
        distributed.destroy_process_group()
