"""Habits of torch users: averaged models, freezing, shared activations, copies, odd calls."""

import copy
import logging

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from optim.test_misuse import refused
from optim.training import error, mlp, problem, seeded, train_batch, train_batches
from zeroone.nn import Step
from zeroone.optim import BCD
from zeroone.utils.checks import InputError


def test_an_average_of_the_weights_can_be_kept():
    X, y = problem()
    model = seeded(mlp)
    averaged, bcd = AveragedModel(model), BCD(model, 60)
    for _ in range(60):
        train_batch(model, bcd, X, y)
        averaged.update_parameters(model)
    assert error(model, X, y) < 0.1
    assert error(averaged.module, X, y) < 0.2


def test_scales_and_windows_follow_their_model():
    model = seeded(mlp)
    train_batches(model, *problem(), 5)
    assert model[1].scale.dtype == torch.float32
    model.double()
    assert {model[1].scale.dtype, model[1].window.dtype} == {torch.float64}
    assert not any("scale" in name for name in model.state_dict())


class OneStep(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.o = nn.Linear(20, 40), nn.Linear(40, 30), nn.Linear(30, 3)
        self.act = Step()

    def forward(self, x):
        return self.o(self.act(self.b(self.act(self.a(x)))))


def test_one_step_after_layers_of_different_widths():
    model = seeded(OneStep)
    with refused("act follows layers of 40 and 30 units: give each its own Step"):
        train_batch(model, BCD(model, 10), *problem())


def test_a_layer_may_be_frozen_while_training():
    X, y = problem()
    model = seeded(mlp)
    bcd = BCD(model, 40)
    for k in range(40):
        if k == 15:
            model[0].requires_grad_(False)
            kept = model[0].weight.clone()
        train_batch(model, bcd, X, y)
    assert torch.equal(model[0].weight, kept)
    assert error(model, X, y) < 0.1


def test_a_layer_that_was_frozen_when_bcd_was_made():
    model = seeded(mlp)
    model[0].requires_grad_(False)
    bcd = BCD(model, 40)
    model[0].requires_grad_(True)
    with refused("0.weight was frozen when BCD was made: make another BCD"):
        train_batch(model, bcd, *problem())


def test_frozen_parts_may_have_16_bits():
    class Halved(nn.Linear):
        def forward(self, x):
            return super().forward(x.bfloat16()).float()

    model = nn.Sequential(Halved(20, 20).bfloat16().requires_grad_(False), *seeded(mlp))
    before = model[0].weight.clone()
    train_batches(model, *problem(), 3)
    assert torch.equal(model[0].weight, before)


def test_adam_is_mentioned_once(caplog):
    model = nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8), Step(), nn.Linear(8, 3))
    with caplog.at_level(logging.WARNING, "zeroone"):
        train_batches(model, *problem(), 3)
    assert [r.getMessage() for r in caplog.records] == [
        "Adam trains parameters without a W block: 1.weight, 1.bias (strict=True refuses them)."
    ]


def test_batches_of_one_sample_are_warned_of():
    X, y = problem()
    model = seeded(mlp)
    bcd = BCD(model, 40)
    with pytest.warns(UserWarning, match="batches of one sample"):
        train_batch(model, bcd, X[:1], y[:1])


@pytest.mark.parametrize("way", [copy.deepcopy, lambda bcd: bcd.__reduce_ex__(2)])
def test_copies_are_refused(way):
    bcd = BCD(seeded(mlp), 10)
    with refused("cannot be copied or pickled: copy its state_dict"):
        way(bcd)


def test_states_of_others():
    model = seeded(mlp)
    bcd = BCD(model, 10)
    with refused("does not fit the model and its settings"):
        bcd.load_state_dict(torch.optim.Adam(model.parameters()).state_dict())
    with refused("does not fit the model and its settings"):
        BCD(seeded(mlp), 10, keep=0.5).load_state_dict(bcd.state_dict())
    with refused("does not fit the model"):
        BCD(seeded(mlp, 20, 9, 30, 3), 10).load_state_dict(
            train_batches(model, *problem(), 3).state_dict()
        )


def test_mistyped_groups():
    model = seeded(mlp)
    with refused("a group has no setting 'mvoe', only move, momentum, head_step, damping, weights"):
        BCD(model, 10, groups=[{"params": [model[0].weight], "mvoe": 0.1}])


class Residual(nn.Module):
    """The last numbered units are added to inputs, and stay."""

    def __init__(self):
        super().__init__()
        self.a, self.c, self.o = nn.Linear(20, 40), nn.Linear(40, 20), nn.Linear(20, 3)
        self.s, self.t = Step(), Step()

    def forward(self, x):
        return self.o(self.t(x + self.c(self.s(self.a(x)))))


def test_units_leave_around_those_that_must_stay():
    model = seeded(Residual)
    train_batches(model, *problem(), 60, keep=0.5)
    assert (len(model.a.weight), len(model.c.weight)) == (20, 20)


class ByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = mlp()

    def forward(self, x):
        return self.inner(x)


def test_inputs_by_name_lose_their_columns_too():
    X, y = problem()
    dead = []
    for call in (lambda m: m(X), lambda m: m(x=X)):
        model = seeded(ByName)
        bcd = BCD(model, 120, lam=0.3)
        for _ in range(120):
            bcd.zero_grad()
            nn.functional.cross_entropy(call(model), y, label_smoothing=0.1).backward()
            bcd.step()
        dead.append(bcd.blocks["inner.0"].dead)
    assert bool(dead[0].any())
    assert torch.equal(*dead)


def test_keep_needs_a_model_that_is_called():
    X, y = problem()
    model = seeded(ByName)
    bcd = BCD(model, 20, keep=0.5)
    with refused("call it, not only its parts"):
        for _ in range(20):
            bcd.zero_grad()
            nn.functional.cross_entropy(model.inner(X), y).backward()
            bcd.step()


@pytest.mark.filterwarnings("ignore")
def test_another_compiled_model_stays_compiled():
    """Also while this one is observed, and after a training that stopped there."""
    graphs = []

    def backend(graph, _examples):
        def run(*args):
            graphs.append(1)
            return graph.forward(*args)

        return run

    other = torch.compile(lambda x: 2 * x + 1, backend=backend)
    model = torch.compile(seeded(mlp), backend=backend)
    bcd = BCD(model, 50)
    assert bcd.observer.attached
    other(torch.ones(3))
    assert len(graphs) == 1
    train_batch(model, bcd, *problem())
    assert len(graphs) == 1  # observed: eager
    torch.compiler.reset()


def test_residuals_that_are_mostly_0():
    """A hinge loss is satisfied by most samples; MKL's float32 eigh fails on such Gram matrices."""
    for seed in range(8):
        torch.manual_seed(seed)
        X = torch.randn(128, 20)
        y = (X[:, 0] > 0).long()
        model = nn.Sequential(nn.Linear(20, 256), Step(), nn.Linear(256, 2))
        bcd = BCD(model, 30)
        for _ in range(30):
            bcd.zero_grad()
            nn.functional.multi_margin_loss(model(X), y).backward()
            bcd.step()
        assert error(model, X, y) == 0


def test_a_layer_frozen_after_bcd_was_made_is_left_alone_until_it_is_not():
    X, y = problem()
    model = seeded(mlp)
    bcd = BCD(model, 40)
    before = model[0].weight.detach().clone()
    model[0].requires_grad_(False)
    for _ in range(12):
        train_batch(model, bcd, X, y)
    assert torch.equal(model[0].weight, before)
    model[0].requires_grad_(True)
    again = BCD(model, 40)
    again.load_state_dict(bcd.state_dict())
    for _ in range(20):
        train_batch(model, again, X, y)
    assert again.blocks["0"].hidden
    assert not torch.equal(model[0].weight, before)


def test_a_state_in_memory_does_not_change():
    X, y = problem()
    model = seeded(mlp)
    bcd = BCD(model, 40, keep=0.5)
    train_batch(model, bcd, X, y)
    state = bcd.state_dict()["bcd"]
    saved = copy.deepcopy(state)
    for _ in range(39):
        train_batch(model, bcd, X, y)
    assert state["removal"]["widths"] == saved["removal"]["widths"] == {}
    for name, (scale, window) in saved["steps"].items():
        assert torch.equal(state["steps"][name][0], scale)
        assert torch.equal(state["steps"][name][1], window)


def test_units_that_ternary_weights_do_not_read_may_leave():
    X, y = problem()
    for seed in range(3):
        model = seeded(mlp, seed=seed)
        train_batches(model, X, y, 120, lam=0.35, weights="ternary")
        unread = (model[2].weight == 0).all(dim=0).sum()
        assert int(unread) <= len(model[0].weight) / 2


def test_a_parameter_that_nobody_uses():
    model = seeded(mlp)
    model.register_parameter("extra", nn.Parameter(torch.ones(3)))
    with refused("extra has no part in the loss"):
        train_batches(model, *problem(), 3)


def test_sparse_gradients():
    with refused("0: BCD needs dense gradients, sparse=False"):
        BCD(nn.Sequential(nn.Embedding(5, 4, sparse=True), Step(dim=-1), nn.Linear(4, 2)), 10)


def test_a_state_of_more_batches():
    state = train_batches(seeded(mlp), *problem(), 20).state_dict()
    with refused("does not fit the model and its settings"):
        BCD(seeded(mlp), 10).load_state_dict(state)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda bcd: torch.optim.lr_scheduler.StepLR(bcd, 3),
        lambda bcd: torch.optim.lr_scheduler.OneCycleLR(bcd, 0.1, 9, cycle_momentum=False),
        torch.optim.lr_scheduler.ReduceLROnPlateau,
    ],
)
def test_schedulers_of_learning_rates(schedule):
    bcd = BCD(seeded(mlp), 10)
    with pytest.raises(InputError, match="no learning rate to schedule"):
        schedule(bcd)


def test_a_changed_window_is_part_of_the_state():
    model = seeded(mlp)
    bcd = train_batches(model, *problem(), 3)
    bcd.window = 0.25
    again = BCD(model, 3)
    again.load_state_dict(bcd.state_dict())
    assert again.window == 0.25


@pytest.mark.parametrize("offset", [1e3, 1e4])
def test_inputs_far_from_0(offset):
    """Their squares, summed, leave float32 no digits for the inputs' spread."""
    X, y = problem()
    model = seeded(mlp)
    train_batches(model, X + offset, y, 60)
    assert error(model, X + offset, y) < 0.1
