"""Layer kinds: the inputs that they show are those that meet the weights."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from optim.training import seeded, train_batch, train_batches
from zeroone.nn import Step
from zeroone.optim import BCD
from zeroone.optim.layers import LAYERS, ROWS, LinearKind, layer_kind, register_layer
from zeroone.optim.w_block import RESIDUAL_DAMPING

SIDES = {1: (13,), 2: (7, 9), 3: (5, 6, 7)}
CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
OPTIONS = [
    {},
    {"stride": 2},
    {"padding": 1},
    {"padding": "same"},
    {"padding": "same", "dilation": 2},
    {"padding": "valid", "dilation": 2},
    {"padding": 1, "padding_mode": "reflect"},
    {"padding": 2, "padding_mode": "circular", "stride": 3},
    {"padding": "same", "padding_mode": "circular"},
    {"padding": 1, "padding_mode": "replicate", "bias": False},
    {"groups": 2},
    {"groups": 4, "padding": 1, "stride": 2},
    {"kernel_size": 1},
    {"kernel_size": 2, "padding": "same"},
]


def conv(dims, **options):
    settings = {"kernel_size": 3, **options}
    return seeded(CONVS[dims], 4, 8, dtype=torch.float64, **settings)


def normal(*shape):
    rng = torch.Generator().manual_seed(3)
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_rows_are_the_patches_of_outputs(dims, options):
    """Times the weights, each gives the outputs of one sample at one position, in all channels."""
    module, x = conv(dims, **options), normal(10, 4, *SIDES[dims])
    kind, output = layer_kind(module), module(x).detach()
    rows, samples = kind.rows(x, torch.arange(10), 10)
    each = rows.shape[1] // 10
    assert each == min(ROWS // 10, output[0, 0].numel())
    found = (rows @ kind.matrix(module.weight.data).mT).transpose(0, 1).flatten(1)  # rows, units
    found = found + (0 if module.bias is None else module.bias.detach())
    for sample, values in zip(samples, found, strict=True):
        positions = output[sample].flatten(1).T
        assert float((positions - values).abs().amax(dim=1).min()) < 1e-12


def test_positions_are_scattered():
    """Of 64 positions, those of 64 samples are many, and different ones."""
    module = nn.Conv2d(1, 1, 1)
    places = torch.arange(64.0).view(1, 1, 8, 8).expand(256, 1, 8, 8)
    seen = layer_kind(module).rows(places, torch.arange(256), 256)[0].flatten()
    assert len(seen) == ROWS
    assert int(seen.long().bincount(minlength=64).min()) >= 1
    assert int(seen.long().bincount(minlength=64).max()) <= 12


@pytest.mark.parametrize("n", [4, 100, 256, 300, 3000])
@pytest.mark.parametrize("cuts", [(0.5,), (0.1, 0.45)])
def test_rows_are_the_same_however_a_batch_is_shared_out(n, cuts):
    dense, image = nn.Linear(5, 2).double(), conv(1, groups=2)
    for module, x in ((dense, normal(n, 5)), (dense, normal(n, 3, 5)), (image, normal(n, 4, 6))):
        kind, at = layer_kind(module), [0, *(int(cut * n) for cut in cuts), n]
        parts = [(a, *kind.rows(x[a:b], torch.arange(a, b), n)) for a, b in pairwise(at) if b > a]
        together, samples = kind.rows(x, torch.arange(n), n)
        assert torch.equal(torch.cat([rows for _, rows, _ in parts], dim=1), together)
        assert torch.equal(torch.cat([first + of for first, _, of in parts]), samples)
        assert min(ROWS, n) <= together.shape[1] < 8 * ROWS


def test_a_share_may_be_empty():
    for module, x in ((nn.Linear(5, 2), torch.zeros(0, 5)), (conv(1), torch.zeros(0, 4, 6))):
        assert layer_kind(module).rows(x, torch.arange(0), 10)[0].shape[1] == 0


@pytest.mark.parametrize("shape", [(6, 5), (6, 3, 5), (6, 2, 3, 5)])
def test_a_dense_layer_shows_its_inputs(shape):
    module, x = nn.Linear(5, 4).double(), normal(*shape)
    kind = layer_kind(module)
    rows, samples = kind.rows(x, torch.arange(6), 6)
    assert torch.equal(rows[0], x.reshape(-1, 5))
    outputs = rows @ kind.matrix(module.weight.data).mT + module.bias
    torch.testing.assert_close(outputs[0], module(x).reshape(-1, 4))
    assert samples.tolist() == [i for i in range(6) for _ in range(rows.shape[1] // 6)]


def convnet():
    backbone = [nn.Conv2d(3, 5, 3), Step(), nn.Conv2d(5, 4, 2), Step(), nn.Flatten()]
    return nn.Sequential(*backbone, nn.Linear(36, 2)).double()


def test_kernels_in_any_order_in_memory_take_the_same_step():
    x, y = normal(20, 3, 6, 6), torch.arange(20) % 2
    for weights in ("real", "ternary"):
        models = []
        for layout in (torch.contiguous_format, torch.channels_last):
            model = seeded(convnet).to(memory_format=layout)
            before = model[0].weight.detach().clone()
            train_batches(model, x.to(memory_format=layout), y, 5, weights=weights)
            assert bool((model[0].weight != before).all())
            models.append(model)
        assert models[1][0].weight.is_contiguous(memory_format=torch.channels_last)
        for a, b in zip(*(model.parameters() for model in models), strict=True):
            torch.testing.assert_close(a, b)


# --- embeddings


def words(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(6, 5, **options), Step(dim=-1), nn.Flatten())
    model.append(nn.Linear(20, 2))
    tokens = torch.randint(5, (30, 4))  # 5 never comes
    return model, tokens, tokens[:, 0] % 2


def test_an_embedding_counts_tokens():
    kind = layer_kind(nn.Embedding(6, 5))
    rows, _ = kind.rows(torch.tensor([[0, 2], [2, 5]]), torch.arange(2), 2)
    assert rows.tolist() == [[[1, 0, 2, 0, 0, 1]]]
    assert kind.matrix(kind.weight).shape == (1, 5, 6)


def test_an_embedding_is_a_dense_layer_on_tokens():
    """Its step is the diagonal's solution, as large as ``move`` says."""
    model, tokens, y = words()
    bcd, before = BCD(model, 10, damping=4.0, balance=False), model[0].weight.detach().clone()
    train_batch(model, bcd, tokens, y)
    grad, after = model[0].weight.grad, model[0].weight.detach()
    f = tokens.flatten().bincount(minlength=6) / tokens.numel()
    B = before[tokens.flatten()]
    variance = B.var(dim=0, correction=0)
    residuals = bcd.blocks["0"].residuals.unit_map(RESIDUAL_DAMPING, variance.sqrt())
    G = residuals.apply(grad.T[None])[0].T / (f + 4 * f.sum())[:, None]
    change = (f[:, None] * G.square()).sum(dim=0)
    expected = before - 0.08 * variance * G / (variance * change).mean().sqrt()
    torch.testing.assert_close(after, expected)
    assert torch.equal(after[5], before[5])
    moved = (after - before)[tokens.flatten()].square().mean(dim=0) / variance
    assert float(moved.mean().sqrt()) == pytest.approx(0.08, rel=1e-4)


def test_padding_stays_zero():
    model, tokens, y = words(padding_idx=0)
    train_batches(model, tokens, y, 10)
    assert model[0].weight[0].tolist() == [0] * 5


def test_an_embedding_of_few_values():
    model, tokens, y = words()
    bcd = train_batches(model, tokens, y, 10, weights="ternary")
    latent = bcd.blocks["0"].latent
    for unit, of_latent in zip(model[0].weight.T, latent.T, strict=True):
        assert len(unit.abs().unique()) <= 2
        assert bool((unit * of_latent >= 0).all())


# --- the registry


def test_subclasses_are_of_their_parents_kind():
    class Scaled(nn.Linear):
        pass

    assert isinstance(layer_kind(Scaled(2, 3)), LinearKind)
    assert layer_kind(nn.LayerNorm(3)) is None


def test_a_kind_of_ones_own(monkeypatch):
    """A layer that multiplies from the right."""

    class Right(nn.Module):
        def __init__(self, n_in, n_out):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(n_in, n_out) / n_in**0.5)

        def forward(self, x):
            return x @ self.weight

    monkeypatch.setitem(LAYERS, Right, None)  # so that it is forgotten in the end

    @register_layer(Right)
    class RightKind(LinearKind):
        def matrix(self, weight):
            return weight.mT[None]

    x, y = normal(100, 6).float(), torch.arange(100) % 2
    model = seeded(lambda: nn.Sequential(Right(6, 8), Step(), nn.Linear(8, 2)))
    plain = seeded(lambda: nn.Sequential(nn.Linear(6, 8, bias=False), Step(), nn.Linear(8, 2)))
    plain[0].weight.data.copy_(model[0].weight.data.T)
    plain[2].load_state_dict(model[2].state_dict())
    for module in (model, plain):
        train_batches(module, x, y, 10)
    torch.testing.assert_close(model[0].weight.T, plain[0].weight)
