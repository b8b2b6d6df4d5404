"""Other ways to run a model: compiled, in bfloat16, in parts of a batch, by several processes."""

import pytest
import torch
from torch import distributed, nn
from torch.nn.functional import cross_entropy

from optim import ranks
from optim.training import (
    digits,
    error,
    mlp,
    problem,
    seeded,
    train_batch,
    train_batches,
)
from zeroone.nn import Step
from zeroone.optim import BCD
from zeroone.optim.bcd import EARLY
from zeroone.optim.layers import ROWS
from zeroone.utils.checks import InputError

# --- torch.compile


class Counting:
    """A backend that runs graphs as they are, and counts them."""

    def __init__(self):
        self.graphs, self.calls = 0, 0

    def __call__(self, graph, _examples):
        self.graphs += 1

        def run(*args):
            self.calls += 1
            return graph.forward(*args)

        return run


@pytest.fixture
def backend():
    yield Counting()
    torch.compiler.reset()
    torch.compiler.set_stance("default")


def losses(model, bcd, n):
    X, y = problem()
    return [train_batch(model, bcd, X, y) for _ in range(n)]


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_model_learns_the_same(backend):
    plain = seeded(mlp)
    expected = losses(plain, BCD(plain, 25), 25)
    model = seeded(mlp)
    compiled = torch.compile(model, backend=backend)
    bcd = BCD(compiled, 25)
    assert bcd.model is model
    assert losses(compiled, bcd, 25) == pytest.approx(expected, rel=1e-4)
    assert all(block.moments for block in bcd.blocks.values())  # observed batches are observed
    assert [block.hidden for block in bcd.blocks.values()] == [True, True, False]
    assert backend.calls > 0


@pytest.mark.filterwarnings("ignore")
def test_all_other_batches_run_one_graph(backend):
    compiled = torch.compile(seeded(mlp), backend=backend)
    losses(compiled, BCD(compiled, 25), 25)
    assert backend.graphs == 1
    assert backend.calls == 25 - len({*EARLY, 10, 20})


@pytest.mark.filterwarnings("ignore")
def test_a_model_may_be_compiled_as_one_graph(backend):
    compiled = torch.compile(seeded(mlp), backend=backend, fullgraph=True)
    found = losses(compiled, BCD(compiled, 12), 12)
    assert found[-1] < found[0]


@pytest.mark.filterwarnings("ignore")
def test_other_functions_run_compiled_after_training(backend):
    compiled = torch.compile(seeded(mlp), backend="eager")
    losses(compiled, BCD(compiled, 20), 20)
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
    assert backend.calls == 1


@pytest.mark.filterwarnings("ignore")
def test_aot_autograd_knows_the_step(backend):
    """The backward pass is compiled, too: it is the residual inside the window."""
    plain, model = seeded(mlp), seeded(mlp)
    compiled = torch.compile(model, backend="aot_eager")
    X, y = problem()
    for one in (plain, compiled):
        cross_entropy(one(X), y).backward()
    for a, b in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


# --- bfloat16


@pytest.mark.parametrize("make", ["dense", "images"])
def test_autocast(make):
    X, y, X_test, y_test = digits()
    backbone = [nn.Conv2d(1, 16, 3), Step(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 10)]
    images = {"images": lambda: nn.Sequential(*backbone)}
    model = seeded(images.get(make, lambda: nn.Sequential(nn.Flatten(), mlp(64, 60, 10))))
    bcd = BCD(model, 60)
    for k in range(60):
        rows = torch.randperm(len(X), generator=torch.Generator().manual_seed(k))[:128]
        bcd.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(X[rows])
            assert scores.dtype == torch.bfloat16
            loss = cross_entropy(scores, y[rows])
        loss.backward()
        bcd.step()
    assert all(p.dtype == torch.float32 for p in model.parameters())
    for block in bcd.blocks.values():
        assert all(T.dtype == torch.float32 for T in block.moments.tensors().values())
    assert error(model, X_test, y_test) < 0.15


# --- parts of a batch


def accumulated(model, bcd, X, y, parts):
    bcd.zero_grad()
    for some_X, some_y in zip(X.chunk(parts), y.chunk(parts), strict=True):
        (cross_entropy(model(some_X), some_y, label_smoothing=0.1) / parts).backward()
    bcd.step()


def test_gradients_of_parts_add_up():
    """As long as the window is the same: the first batch's, in which scales are 1."""
    X, y = (T[:ROWS] for T in problem(torch.float64))  # of more samples, some are looked at
    weights = []
    for parts in (1, 4):
        model = seeded(mlp).double()
        bcd = BCD(model, 10, balance=False)
        for module in model:
            if isinstance(module, Step):
                module.take_scale = lambda *_: None
        accumulated(model, bcd, X, y, parts)
        weights.append([p.detach().clone() for p in model.parameters()])
        assert bcd.k == 1
    for a, b in zip(*weights, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_parts_of_batches_train():
    X, y = problem()
    model = seeded(mlp)
    bcd = BCD(model, 80)
    for _ in range(80):
        accumulated(model, bcd, X, y, 4)
    assert error(model, X, y) < 0.05


def test_a_closure_is_called_once():
    X, y = problem()
    models = [seeded(mlp), seeded(mlp)]
    bcd, calls = BCD(models[0], 12), []

    def closure():
        bcd.zero_grad()
        loss = cross_entropy(models[0](X), y, label_smoothing=0.1)
        loss.backward()
        calls.append(loss.item())
        return loss

    found = [bcd.step(closure).item() for _ in range(12)]
    assert found == calls
    train_batches(models[1], X, y, 12)
    for a, b in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(a, b)


# --- several processes


@pytest.fixture(scope="module")
def alone():
    return {name: ranks.trained(name) for name in ranks.JOBS}


@pytest.mark.parametrize("size", [2, 4])
def test_several_ranks_do_what_one_does(size, alone, tmp_path):
    found = ranks.run_ranks(size, tmp_path)
    first, *others = found.pop("apart")
    for other in others:  # ranks with another loss take the same steps
        torch.testing.assert_close(other, first, rtol=0, atol=0)
    for name, of_ranks in found.items():
        for of_rank in of_ranks:
            torch.testing.assert_close(of_rank, alone[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("options", [{"keep": 0.5}, {"lam": 0.1}], ids=str)
def test_units_cannot_leave_a_parallel_model(options, tmp_path):
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    try:
        model = nn.parallel.DistributedDataParallel(seeded(mlp))
        with pytest.raises(InputError, match="DistributedDataParallel"):
            BCD(model, 10, **options)
    finally:
        distributed.destroy_process_group()
