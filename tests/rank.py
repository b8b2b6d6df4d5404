"""One of several processes that train together, started by tests."""

import json
import sys
from pathlib import Path

import torch
from torch import distributed

from zeroone.data.embedded import load_embedded
from zeroone.heads import SoftmaxCE
from zeroone.layers import LayerPlan
from zeroone.network import Network
from zeroone.parallel import ALONE, Ranks, Share
from zeroone.scaling import Scaling
from zeroone.solvers.stochastic import StochasticBCD, StochasticSettings


def stochastic(team, job):
    """A hundred batches of digits, cut by ownership of the samples: uneven parts, some empty."""
    digits = load_embedded("digits")
    dtype = getattr(torch, job.get("dtype", "float32"))
    X, y = torch.from_numpy(digits.X).to(dtype), torch.from_numpy(digits.y)
    scaling = Scaling.fit(X, dtype)
    plans = [LayerPlan.parse(layer) for layer in job["hidden"]]
    shape = (1, 8, 8) if plans[0].kernel else (64,)
    network = Network.build(shape, plans, 10, SoftmaxCE(), seed=1, dtype=dtype, scaling=scaling)
    settings = StochasticSettings(**job["settings"])
    solver = StochasticBCD(network, settings, job["batches"], team=team)
    owner = torch.searchsorted(torch.tensor(job["cuts"]) * len(y), torch.arange(len(y)), right=True)
    for k in range(job["batches"]):
        rng = torch.Generator().manual_seed(k)
        rows = torch.randperm(len(y), generator=rng)[: job["batch"]]
        places = (owner[rows] == team.rank).nonzero().flatten()
        share = Share(len(rows), places) if team.size > 1 else None
        mine = rows[places] if team.size > 1 else rows
        solver.update(scaling.apply(X[mine]), y[mine], rng, None, share)
    return {f"{i}": link.operator.weight for i, link in enumerate(network.links)}


def main():
    rank, size, meeting, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    job = json.loads(sys.argv[5])
    torch.set_num_threads(1)
    if size > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size
        )
    found = stochastic(Ranks() if size > 1 else ALONE, job)
    torch.save(found, out / f"{size}-{rank}.pt")
    if size > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
