"""One of several processes that train together by DistributedDataParallel, started by tests."""

import multiprocessing
import time
from datetime import timedelta

import torch
from torch import distributed, nn
from torch.nn.functional import cross_entropy

from optim.training import mlp, seeded, train_batch
from zeroone.nn import Step
from zeroone.optim import BCD

N_BATCHES, BATCH = 50, 64


def convnet():
    backbone = [nn.Conv2d(1, 6, 3), Step(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 2, groups=2), Step()]
    return nn.Sequential(*backbone, nn.Flatten(), nn.Linear(32, 10))


def dense():
    return nn.Sequential(nn.Flatten(), mlp(64, 30, 20, 10))


JOBS = {"dense": (dense, {"weights": "ternary"}), "images": (convnet, {})}


class Heads(nn.Module):
    """Two heads on one body."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 30), Step())
        self.a, self.b = nn.Linear(30, 10), nn.Linear(30, 10)

    def forward(self, x):
        bits = self.body(x)
        return self.a(bits), self.b(bits)


def batch(k, rank=0, size=1):
    """This rank's part of batch k: noise in which a teacher sees ten classes."""
    rng = torch.Generator().manual_seed(k)
    X = torch.randn(BATCH, 1, 8, 8, generator=rng, dtype=torch.float64)
    teacher = torch.randn(64, 10, generator=torch.Generator().manual_seed(99)).double()
    y = (X.flatten(1) @ teacher).argmax(dim=1)
    part = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    return X[part], y[part]


def trained(name, rank=0, size=1):
    """What is left of a training: weights, scales, moments."""
    make, options = JOBS[name]
    model = seeded(make).double()
    called = nn.parallel.DistributedDataParallel(model) if size > 1 else model
    bcd = BCD(called, N_BATCHES, **options)
    for k in range(N_BATCHES):
        train_batch(called, bcd, *batch(k, rank, size))
    scales = {f"{n} scale": m.scale for n, m in model.named_modules() if isinstance(m, Step)}
    means = {f"{n} mean": block.moments.mean for n, block in bcd.blocks.items()}
    return {**model.state_dict(), **scales, **means}


def trained_apart(rank, size):
    """What is left if only the first rank's loss has a part for the second head."""
    model = seeded(Heads).double()
    called = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    bcd = BCD(called, 12)
    for k in range(12):
        X, y = batch(k, rank, size)
        bcd.zero_grad()
        losses = [cross_entropy(scores, y) for scores in called(X)]
        (sum(losses) if rank == 0 else losses[0]).backward()
        bcd.step()
    return model.state_dict()


def work(rank, size, meeting, folder):
    """One rank: all jobs, one after the other."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=120),
    )
    for name in JOBS:
        torch.save(trained(name, rank, size), f"{folder}/{name}-{size}-{rank}.pt")
    torch.save(trained_apart(rank, size), f"{folder}/apart-{size}-{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


def run_ranks(size, folder):
    """What each rank ends with, by job."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "zeroone.optim", "zeroone.data.embedded"])
    meeting = folder / f"meeting-{size}-{time.monotonic_ns()}"
    ranks = [
        context.Process(target=work, args=(rank, size, str(meeting), str(folder)))
        for rank in range(size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=240)
    assert [process.exitcode for process in ranks] == [0] * size
    return {
        name: [torch.load(folder / f"{name}-{size}-{rank}.pt") for rank in range(size)]
        for name in (*JOBS, "apart")
    }
