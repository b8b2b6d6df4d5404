"""Units that leave: which go together, what stays, and what the others take over."""

import functools

import pytest
import torch
from torch import nn

from optim.modules import Branches, Normed, Recurrent, Separable, Stream, Words, sentences
from optim.training import (
    digits,
    error,
    mlp,
    problem,
    seeded,
    train,
    train_batch,
    train_batches,
)
from zeroone.nn import Step
from zeroone.optim import BCD
from zeroone.optim.graph import INPUT, NONE, unit_graph
from zeroone.optim.removal import Removal, kept_share, removal_costs, without
from zeroone.utils.checks import InputError


@pytest.fixture
def normal(rng):
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


def convnet():
    backbone = [nn.Conv2d(1, 16, 3), Step(), nn.MaxPool2d(2), nn.Conv2d(16, 24, 2), Step()]
    return nn.Sequential(*backbone, nn.Flatten(), nn.Linear(96, 40), Step(), nn.Linear(40, 10))


def shapes(bcd):
    return {name: tuple(block.kind.weight.shape) for name, block in bcd.blocks.items()}


# --- removal, against brute force


def test_removing_columns_is_a_constrained_minimum(normal):
    """min tr((X - W) M (X - W)^T) by least squares in the columns that stay."""
    W, root = normal(4, 6), normal(12, 6)
    M = root.T @ root
    R, gone, stay = torch.linalg.inv(M), torch.tensor([1, 4]), torch.tensor([0, 2, 3, 5])
    X = without(W, R[gone], gone)
    # tr(D M D^T) = |root D^T|^2: fit what all columns carry by those that stay.
    fitted = torch.linalg.lstsq(root[:, stay], root @ W.T).solution.T
    torch.testing.assert_close(X[:, stay], fitted)
    assert X[:, gone].tolist() == torch.zeros(4, 2).tolist()


def test_the_cost_of_a_column_is_what_its_removal_costs(normal):
    W, root = normal(4, 6), normal(12, 6)
    R = torch.linalg.inv(root.T @ root)
    for j, cost in enumerate(removal_costs(W, R.diagonal())):
        stay = [i for i in range(6) if i != j]
        left = torch.linalg.lstsq(root[:, stay], root @ W.T).solution
        lost = root[:, stay] @ left - root @ W.T
        assert float(cost) == pytest.approx(float(lost.square().sum()))


def test_the_bias_makes_up_for_the_mean():
    X, y = problem(torch.float64)
    model = seeded(mlp).double()
    bcd = train_batches(model, X, y, 3)
    mean, layer = bcd.blocks["2"].moments.mean[0], model[2]
    before = (layer.weight @ mean + layer.bias).detach()
    Removal(bcd, 0.5, 0.0)._empty(bcd.blocks["2"], torch.tensor([3, 17]))
    assert float(layer.weight[:, [3, 17]].detach().abs().max()) == 0
    torch.testing.assert_close((layer.weight @ mean + layer.bias).detach(), before)


def test_the_schedule_of_keep():
    assert kept_share(0.5, 0.0) == kept_share(0.5, 0.1) == 1.0
    assert kept_share(0.5, 0.6) == kept_share(0.5, 1.0) == 0.5
    shares = [kept_share(0.5, t / 20) for t in range(21)]
    assert shares == sorted(shares, reverse=True)


def test_the_cheapest_units_leave():
    X, y = problem()
    model = seeded(mlp, 20, 10, 3)
    with torch.no_grad():
        model[2].weight[:, [2, 5, 7]] = 1e-6
    bcd = train_batches(model, X, y, 10, keep=0.7, move=1e-9, head_step=1e-9)
    assert bcd.removal.units["0"].tolist() == [0, 1, 3, 4, 6, 8, 9]


# --- whole trainings


def test_a_unit_leaves_with_its_bits_of_every_threshold():
    X, y = problem()
    norm, step = nn.BatchNorm1d(12, affine=False), Step(thresholds=(-0.5, 0.5))
    model = seeded(lambda: nn.Sequential(nn.Linear(20, 12), norm, step, nn.Linear(24, 3)))
    bcd = train_batches(model, X, y, 120, keep=0.5, momentum=0.9)
    assert [tuple(p.shape) for p in model.parameters()] == [(6, 20), (6,), (3, 12), (3,)]
    assert norm.num_features == len(norm.running_mean) == 6
    assert len(bcd.removal.units["0"]) == 6
    assert error(model, X, y) < 0.1


def test_keep_halves_a_chain():
    X, y = problem()
    model = seeded(mlp)
    bcd = train_batches(model, X, y, 120, keep=0.5)
    assert [tuple(p.shape) for p in model.parameters()] == [
        *((20, 20), (20,), (15, 20), (15,)),
        *((3, 15), (3,)),
    ]
    assert (model[0].out_features, model[2].in_features, model[2].out_features) == (20, 20, 15)
    assert error(model, X, y) < 0.05
    assert {name: len(units) for name, units in bcd.removal.units.items()} == {
        "0": 20,
        "2": 15,
        "4": 3,
    }
    model = seeded(mlp)
    assert shapes(train_batches(model, X, y, 60, keep=0.001)) == {
        "0": (1, 20),
        "2": (1, 1),
        "4": (3, 1),
    }


KEPT = {
    "pooling and flattening": (convnet, 5, [8, 12, 20, 10], 0.35),
    "concatenation": (Branches, 4, [8, 8, 32, 10], 0.35),
    "a stream": (functools.partial(Stream, 5), 4, [32, 10, 32, 32, 32], 0.15),
    "depthwise": (Separable, 3, [16, 10, 16, 32, 32, 32], 0.35),
    "BatchNorm": (Normed, 4, [8, 16, 10], 0.45),
    "recurrent": (Recurrent, 5, [32, 32, 10], 0.5),
}


@pytest.mark.parametrize("name", KEPT)
def test_keep_halves(name):
    make, epochs, units, most = KEPT[name]
    X, y, X_test, y_test = digits()
    model = seeded(make)
    before = sum(p.numel() for p in model.parameters())
    bcd = train(model, X, y, epochs=epochs, keep=0.5)
    assert [shape[0] for shape in shapes(bcd).values()] == units
    assert sum(p.numel() for p in model.parameters()) < 0.62 * before
    assert error(model, X_test, y_test) < most
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert len(module.running_mean) == len(module.weight) == module.num_features


LEFT_BY_LAM = {
    "pooling and flattening": (convnet, 0.35),
    "BatchNorm": (Normed, 0.35),
    "recurrent": (Recurrent, 0.34),
}


@pytest.mark.parametrize("name", LEFT_BY_LAM)
def test_lam_makes_units_leave(name):
    X, y, X_test, y_test = digits()
    model = seeded(LEFT_BY_LAM[name][0])
    before = sum(p.numel() for p in model.parameters())
    train(model, X, y, epochs=6, lam=LEFT_BY_LAM[name][1])
    assert sum(p.numel() for p in model.parameters()) < before
    assert error(model, X_test, y_test) < 0.3


def test_a_high_price_does_not_empty_a_layer_at_once():
    """Removals upset the layers after them; a price that stays as it was took all units but one."""
    X, y, X_test, y_test = digits()
    model = seeded(Recurrent)
    train(model, X, y, epochs=6, lam=0.38)
    assert 10 < len(model.read.weight) < 60
    assert error(model, X_test, y_test) < 0.3


def test_lam_is_a_price_and_empties_columns_of_inputs():
    """Over four starts: the higher the price, the fewer units and inputs are left."""
    X, y = problem()
    widths, dead = [], []
    for lam in (0.2, 0.3, 0.4):
        widths.append(0)
        dead.append(0)
        for seed in range(4):
            model = seeded(mlp, seed=seed)
            bcd = train_batches(model, X, y, 120, lam=lam)
            gone = bcd.blocks["0"].dead
            gone = torch.zeros(20).bool() if gone is None else gone
            assert float(model[0].weight.detach()[:, gone].abs().sum()) == 0
            assert error(model, X, y) < 0.2
            widths[-1] += len(model[0].weight)
            dead[-1] += int(gone.sum())
    assert 4 * 40 > widths[0] > widths[1] > widths[2] > 4
    assert 0 < dead[1] < dead[2] < 4 * 20


def test_tokens_and_their_units():
    X, y = sentences(1000, 0)
    model = seeded(Words)
    bcd = train(model, X, y, epochs=8, keep=0.5)
    assert shapes(bcd) == {"embed": (20, 8), "pairs": (24, 8, 2), "head": (6, 24)}
    assert model.embed.embedding_dim == 8
    assert error(model, *sentences(300, 1)) < 0.1


def test_channels_with_several_units_leave_with_them():
    X, y = problem()
    backbone = [nn.Conv1d(4, 6, 1), Step(), nn.Conv1d(6, 12, 3, groups=6), Step(), nn.Flatten()]
    model = seeded(lambda: nn.Sequential(*backbone, mlp(36, 12, 3)))
    bcd = train_batches(model, X.view(-1, 4, 5), y, 40, keep=0.5)
    assert [shape[0] for shape in shapes(bcd).values()] == [3, 6, 6, 3]
    assert model[2].groups == 3


def test_frozen_parameters_shrink_and_stay_frozen():
    X, y = problem()
    backbone = [nn.Linear(20, 16), nn.BatchNorm1d(16), Step(), nn.Linear(16, 3)]
    model = seeded(lambda: nn.Sequential(*backbone))
    for parameter in (model[0].bias, *model[1].parameters()):
        parameter.requires_grad_(False)
    train_batches(model, X, y, 40, keep=0.5)
    assert [(len(p), p.requires_grad) for p in model.parameters()] == [
        *((8, True), (8, False), (8, False), (8, False)),
        *((3, True), (3, True)),
    ]


# --- which units go together


def graph_of(model, X):
    """Also gives the optimizer, after one batch."""
    bcd = BCD(model, 100, keep=0.5)
    train_batch(model, bcd, X, torch.arange(len(X)) % 3)
    layers = {name: block.kind for name, block in bcd.blocks.items()}
    return unit_graph(bcd.model, layers, bcd.removal._inputs), bcd


def test_a_chain_has_a_label_for_every_unit():
    graph, _ = graph_of(seeded(mlp), problem()[0])
    assert graph.units["0"].tolist() == list(range(40))
    assert graph.units["2"].tolist() == list(range(40, 70))
    assert graph.units["4"].tolist() == [NONE] * 3
    assert graph.columns["0"].tolist() == [INPUT] * 20
    assert graph.columns["2"].tolist() == list(range(40))
    assert graph.columns["1"].tolist() == list(range(40))


def test_all_layers_of_a_stream_share_their_units():
    graph, _ = graph_of(seeded(Stream, 5, 12), digits()[0][:20])
    first = graph.units["first"].tolist()
    assert len(set(first)) == 12
    for name in ("branches.0", "branches.1", "branches.2"):
        assert graph.units[name].tolist() == graph.columns[name].tolist() == first
    assert graph.columns["head"].tolist() == first


def test_flattening_repeats_a_channel_and_concatenation_keeps_order():
    X = digits()[0][:20]
    graph, _ = graph_of(seeded(convnet), X)
    assert graph.columns["6"].tolist() == graph.units["3"].repeat_interleave(4).tolist()
    graph, _ = graph_of(seeded(Branches), X)
    both = torch.cat([graph.units["narrow"], graph.units["wide"]])
    assert graph.columns["mix"].tolist() == both.repeat_interleave(9).tolist()


WHOLE = {"net": convnet, "branches": Branches, "stream": functools.partial(Stream, 5, 20)}
WHOLE |= {"depthwise": Separable, "norm": Normed, "recurrent": Recurrent}
WHOLE |= {"channels": functools.partial(Separable, 2)}


@pytest.mark.parametrize("name", WHOLE)
def test_a_unit_that_feeds_nothing_leaves_without_a_trace(name):
    """Small whole numbers, so that sums are exact in any order."""
    torch.manual_seed(0)
    X = torch.randint(-3, 4, (20, 1, 8, 8)).double()
    model = seeded(WHOLE[name]).double()
    graph, bcd = graph_of(model, X)
    labels = torch.cat([numbers[numbers >= 0] for numbers in graph.units.values()]).unique()
    gone = labels[torch.randperm(len(labels))[: len(labels) // 3]]
    with torch.no_grad():
        for place, block in bcd.blocks.items():
            kind = block.kind
            kind.weight.copy_(torch.randint(-2, 3, kind.weight.shape))
            if kind.bias is not None:
                kind.bias.copy_(torch.randint(-2, 3, kind.bias.shape) + 0.5)
            if kind.groups == 1:
                kind.matrix(kind.weight.data)[0][:, torch.isin(graph.columns[place], gone)] = 0
        before = model.eval()(X)
        n = sum(p.numel() for p in model.parameters())
        bcd.removal.graph = graph
        bcd.removal._remove(gone)
        assert torch.equal(model(X), before)
    assert sum(p.numel() for p in model.parameters()) < n
    assert float(before.std(dim=0).min()) > 0
    train_batch(model.train(), bcd, X, torch.arange(20) % 3)  # and it goes on


def test_what_is_added_to_inputs_stays():
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head = nn.Linear(20, 20), nn.Linear(20, 10), nn.Linear(10, 3)
            self.s, self.t = Step(), Step()

        def forward(self, x):
            return self.head(self.t(self.b(x + self.s(self.a(x)))))

    bcd = train_batches(seeded(Skip), *problem(), 40, keep=0.5)
    assert shapes(bcd) == {"a": (20, 20), "b": (5, 20), "head": (3, 5)}


def test_the_units_around_groups_stay():
    X, y = problem()
    backbone = [nn.Conv1d(4, 8, 1), Step(), nn.Conv1d(8, 6, 3, groups=2), Step(), nn.Flatten()]
    model = seeded(lambda: nn.Sequential(*backbone, mlp(18, 12, 3)))
    bcd = train_batches(model, X.view(-1, 4, 5), y, 40, keep=0.5)
    assert [shape[0] for shape in shapes(bcd).values()] == [8, 6, 6, 3]


def test_depthwise_convolutions_of_inputs_stay():
    X, y = problem()
    backbone = [nn.Conv1d(4, 8, 3, groups=4), Step(), nn.Flatten()]
    model = seeded(lambda: nn.Sequential(*backbone, mlp(24, 12, 3)))
    bcd = train_batches(model, X.view(-1, 4, 5), y, 40, keep=0.5)
    assert [shape[0] for shape in shapes(bcd).values()] == [8, 6, 3]


# --- what is not a layer of ours


class Two(nn.Module):
    """Two layers side by side, of which ``join`` makes one."""

    def __init__(self, join, n=15, columns=None):
        super().__init__()
        self.a, self.b, self.next = nn.Linear(20, n), nn.Linear(20, n), nn.Linear(columns or n, 12)
        self.s, self.t, self.u, self.head = Step(), Step(), Step(), nn.Linear(12, 3)
        self.join = join

    def forward(self, x):
        return self.head(self.u(self.next(self.join(self, x))))


def in_between(module):
    return seeded(lambda: nn.Sequential(nn.Linear(20, 16), Step(), module, mlp(16, 12, 3)))


@pytest.mark.parametrize("module", [nn.LayerNorm(16), nn.Softmax(dim=1)], ids=["norm", "softmax"])
def test_what_mixes_units_is_refused(module):
    X, y = problem()
    with pytest.raises(InputError, match=r"^keep and lam cannot follow the units of '0'"):
        train_batches(in_between(module), X, y, 40, keep=0.5)


JOINS = {
    "gate": lambda m, x: m.s(m.a(x)) * m.t(m.b(x)),
    "sigmoid": lambda m, x: m.s(m.a(x)) * torch.sigmoid(m.b(x)),
    "max": lambda m, x: m.s(m.a(x)) + m.t(m.b(x)).amax(dim=1, keepdim=True),
    "norm": lambda m, x: nn.functional.layer_norm(m.s(m.a(x)) + m.t(m.b(x)), (15,)),
}


@pytest.mark.parametrize("name", JOINS)
def test_what_cannot_be_followed_is_refused(name):
    X, y = problem()
    with pytest.raises(InputError, match=r"^keep and lam cannot follow the units of"):
        train_batches(seeded(Two, JOINS[name]), X, y, 40, keep=0.5)


def test_constants_and_frozen_layers_do_not_count_as_units():
    X, y = problem()
    model = seeded(mlp, 20, 30, 16, 12, 3)
    model[0].requires_grad_(False)
    bcd = train_batches(model, X, y, 40, keep=0.5)
    assert shapes(bcd) == {"2": (8, 30), "4": (6, 8), "6": (3, 6)}

    def join(m, x):
        bits = m.s(m.a(x)) + m.t(m.b(x))
        return torch.cat([bits, torch.ones(len(x), 1)], dim=1)

    bcd = train_batches(seeded(Two, join, 16, 17), X, y, 40, keep=0.5)
    assert shapes(bcd) == {"a": (8, 20), "b": (8, 20), "next": (6, 9), "head": (3, 6)}


def test_what_is_added_to_a_parameter_stays():
    X, y = problem()
    model = seeded(Two, lambda m, x: m.s(m.a(x)) + m.t(m.b(x)) + m.shift)
    model.shift = nn.Parameter(torch.ones(15))
    bcd = train_batches(model, X, y, 40, keep=0.5)
    assert shapes(bcd) == {"a": (15, 20), "b": (15, 20), "next": (6, 15), "head": (3, 6)}
