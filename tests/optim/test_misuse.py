"""What BCD cannot do, it says in one sentence; settings of single parameters take effect."""

import copy
import gc
import io
import re
import weakref

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear

from optim.training import error, mlp, problem, seeded, train_batch, train_batches
from zeroone.nn import Step, step
from zeroone.optim import BCD
from zeroone.utils.checks import InputError


class refused:  # noqa: N801
    """Raises InputError with one sentence that matches."""

    def __init__(self, pattern):
        self.pattern, self.raises = pattern, pytest.raises(InputError)

    def __enter__(self):
        self.found = self.raises.__enter__()

    def __exit__(self, *raised):
        assert self.raises.__exit__(*raised)
        message = str(self.found.value)
        assert re.search(self.pattern, message), message
        assert message.endswith((".", "?"))
        assert "\n" not in message
        return True


def normed():
    return nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8), Step(), nn.Linear(8, 3))


# --- models


def test_no_step():
    with refused("no zeroone.nn.Step"):
        BCD(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)), 10)


def test_a_layer_that_has_no_part_in_the_loss():
    model = seeded(mlp)
    model.unused = nn.Linear(2, 2)
    model.forward = lambda x: model[4](model[3](model[2](model[1](model[0](x)))))
    with refused("unused.weight has no part in the loss"):
        train_batch(model, BCD(model, 10), *problem())


@pytest.mark.parametrize(
    "parameter",
    [torch.zeros(3, dtype=torch.complex64), torch.zeros(3, dtype=torch.int64)],
    ids=["complex", "whole"],
)
def test_numbers_that_are_not_real(parameter):
    model = seeded(mlp)
    model.extra = nn.Parameter(parameter, requires_grad=parameter.is_complex())
    with refused("extra is torch.*: BCD trains real floating point numbers"):
        BCD(model, 10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_16_bits(dtype):
    with refused("0.weight is torch.*autocast"):
        BCD(seeded(mlp).to(dtype), 10)


def test_nothing_to_train():
    with refused("no trainable parameters"):
        BCD(seeded(mlp).requires_grad_(False), 10)


def test_strict_takes_weights_only():
    with refused("strict: 1.weight, 1.bias have no W block"):
        BCD(normed(), 10, strict=True)
    BCD(seeded(mlp), 10, strict=True)
    model = seeded(normed)
    before = model[1].weight.detach().clone()
    train_batches(model, *problem(), 5)  # else Adam takes them
    assert not torch.equal(model[1].weight, before)


def test_two_layers_that_share_a_parameter():
    model = nn.Sequential(nn.Embedding(7, 12), Step(dim=-1), nn.Linear(12, 7, bias=False))
    model[2].weight = model[0].weight
    with refused("0 and 2 share their weights"):
        BCD(model, 10)


# --- loops


def test_step_without_backward():
    model = seeded(mlp)
    bcd = BCD(model, 10)
    with refused("backward"):
        bcd.step()
    model(problem()[0])
    with refused("backward"):
        bcd.step()


def test_more_batches_than_announced():
    X, y = problem()
    model = seeded(mlp)
    bcd = train_batches(model, X, y, 3)
    before = copy.deepcopy(model.state_dict())
    with refused("total_steps=3 batches are done"):
        train_batch(model, bcd, X, y)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_batches_without_end():
    X, y = problem()
    model = seeded(mlp)
    bcd = BCD(model, None)
    for _ in range(80):
        train_batch(model, bcd, X, y)
    assert error(model, X, y) < 0.1
    assert bcd.left == 2000 / 2080


def test_a_model_in_evaluation_mode():
    X, y = problem()
    model = seeded(mlp)
    bcd = BCD(model, 100)
    model.eval()
    with refused(r"call model.train\(\)"):
        train_batch(model, bcd, X, y)
    bcd = BCD(model.train(), 100)
    for _ in range(12):
        train_batch(model, bcd, X, y)
    model.eval()
    with refused(r"call model.train\(\)"):
        for _ in range(10):
            train_batch(model, bcd, X, y)
    assert bcd.k == 20  # the next batch that is observed


def test_a_model_that_is_not_the_one_that_is_trained():
    X, y = problem()
    model, other = seeded(mlp), seeded(mlp)
    bcd = BCD(model, 10)
    cross_entropy(other(X), y).backward()
    with refused("backward"):
        bcd.step()


@pytest.mark.parametrize("way", ["functional", "evaluated"])
def test_a_layer_that_is_not_called_in_training_mode(way):
    class Used(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.step, self.head = nn.Linear(20, 9), Step(), nn.Linear(9, 3)

        def forward(self, x):
            x = self.a(x) if way == "evaluated" else linear(x, self.a.weight, self.a.bias)
            return self.head(self.step(x))

    model = seeded(Used)
    bcd = BCD(model, 10)
    model.a.train(way != "evaluated")
    with refused("BCD saw no inputs of a"):
        train_batch(model, bcd, *problem())


@pytest.mark.parametrize("at", [0, 3, 15])
def test_inputs_that_are_no_numbers_do_not_pass_unnoticed(at):
    X, y = problem()
    broken = X.clone()
    broken[3, 5] = torch.nan
    model = seeded(mlp)
    bcd = BCD(model, 100)
    with refused("outputs of 0 are not finite"):
        for k in range(at + 10):
            train_batch(model, bcd, broken if k == at else X, y)


def test_a_batch_without_samples():
    X, y = problem()
    model = seeded(mlp)
    with refused("a batch without samples reached 0"):
        train_batch(model, BCD(model, 10), X[:0], y[:0])


# --- settings


@pytest.mark.parametrize(
    ("layer", "step", "axis", "shape"),
    [(nn.Linear(5, 8), Step(), -1, (3, 4, 5)), (nn.Conv1d(4, 8, 3), Step(dim=-1), 1, (3, 4, 8))],
)
def test_a_step_along_another_axis_than_the_units_before_it(layer, step, axis, shape):
    model = nn.Sequential(layer, step)
    _bcd = BCD(model, 10)  # it observes while it lives
    with refused(rf"units of 0 are axis {axis} of its output: give 1 Step\(dim={axis}\)"):
        model(torch.zeros(shape))


@pytest.mark.parametrize(
    ("layers", "sample"),
    [
        ((nn.Linear(4, 8), Step(), nn.Linear(8, 2)), torch.zeros(4)),
        ((nn.Conv2d(1, 2, 3), Step(dim=0), nn.Conv2d(2, 2, 3)), torch.zeros(1, 8, 8)),
    ],
)
def test_a_sample_without_a_batch_axis(layers, sample):
    model = nn.Sequential(*layers)
    _bcd = BCD(model, 10)  # it observes while it lives
    with refused("^0 got a sample without a batch axis"):
        model(sample)


def test_settings_that_cannot_be_are_refused_later_too():
    bcd = BCD(seeded(mlp), 10)
    with refused("takes its groups when it is made"):
        bcd.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    with refused("no learning rate to schedule"):
        bcd.param_groups[0]["lr"] = 0.1
    with refused("move must be zero or a positive number"):
        bcd.param_groups[0]["move"] = -0.1
    assert bcd.param_groups[0]["move"] == 0.08


def test_adam_does_not_train_w_blocks():
    model = seeded(mlp)
    with refused("no others"):
        BCD(model, 10, groups=[{"params": model[0].parameters(), "adam": True}])
    for not_tensors in (model[0], model, nn.ModuleList([model[0]]), "0.weight"):
        with refused("params are tensors"):
            BCD(model, 10, groups=[{"params": not_tensors}])


def test_an_unknown_rule_is_refused_at_once():
    with refused("unknown rule 'foo'"):
        step(torch.zeros(2, 3), rule="foo")


def test_a_state_that_does_not_fit_changes_nothing():
    X, y = problem()
    other = train_batches(seeded(mlp, 20, 8, 3), X, y, 5)
    pruned = train_batches(seeded(mlp), X, y, 5, keep=0.9)
    model = seeded(mlp)
    bcd = BCD(model, 10)
    before = copy.deepcopy(bcd.state_dict())
    for state in (other.state_dict(), pruned.state_dict()):
        with refused("does not fit"):
            bcd.load_state_dict(state)
        assert bcd.k == 0
        assert str(bcd.state_dict()) == str(before)


@pytest.mark.parametrize("groups", [[{"move": 0.1}], {"move": 0.1}])
def test_groups_without_parameters(groups):
    with refused("a dict of params and their settings"):
        BCD(seeded(mlp), 10, groups=groups)


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ({"total_steps": 0}, "total_steps must be a whole number of at least 1"),
        ({"total_steps": 1.5}, "total_steps must be a whole number"),
        ({"total_steps": None, "keep": 0.5}, "need to know when the training ends: total_steps"),
        ({"total_steps": None, "lam": 0.1}, "need to know when the training ends: total_steps"),
        ({"keep": 0.5, "lam": 0.1}, "either lam or keep, not both"),
        ({"keep": 0}, "keep must be above 0 and at most 1"),
        ({"keep": 1.5}, "keep must lie between 0 and 1"),
        ({"lam": -0.1}, "lam must be zero or a positive number"),
        ({"weights": "tenary"}, "unknown weights 'tenary'.*Did you mean 'ternary'"),
        ({"move": -1.0}, "move must be zero or a positive number"),
        ({"head_step": float("nan")}, "head_step must be zero or a positive number"),
        ({"damping": 0.0}, "damping must be a positive number"),
        ({"window": 0.0}, "window must be a positive number"),
        ({"adam_lr": -1.0}, "adam_lr must be a positive number"),
    ],
    ids=str,
)
def test_settings_that_cannot_be(settings, pattern):
    with refused(pattern):
        BCD(seeded(mlp), **{"total_steps": 10, **settings})


def test_groups_that_cannot_be():
    model = seeded(mlp)
    first = {"params": [model[0].weight], "move": 0.1}
    with refused("0.weight is not a trainable W block, or is in two groups"):
        BCD(model, 10, groups=[first, first])
    with refused("a parameter is not a trainable W block"):
        BCD(model, 10, groups=[{"params": [nn.Parameter(torch.zeros(3))]}])
    with refused("unknown weights"):
        BCD(model, 10, groups=[{**first, "weights": "quaternary"}])
    with refused("1.weight is not a trainable W block"):
        model = normed()
        BCD(model, 10, groups=[{"params": model[1].parameters()}])


def after(n=3, of=None, **settings):
    """The parameters after some batches; ``of`` layer have these settings, else all."""
    X, y = problem()
    model = seeded(mlp)
    if of is not None:
        settings = {"groups": [{"params": model[of].parameters(), **settings}]}
    train_batches(model, X, y, n, balance=False, **settings)
    return {name: p.detach() for name, p in model.named_parameters()}


def test_a_group_has_settings_of_its_own():
    plain = after(1)
    for name, value in after(1, of=2, move=0.0).items():
        assert torch.equal(value, seeded(mlp).get_parameter(name)) == name.startswith("2.")
        assert torch.equal(value, plain[name]) != name.startswith("2.")
    for settings in ({"damping": 100.0}, {"weights": "binary"}):
        found, of_all = after(1, of=2, **settings), after(1, **settings)
        for name in plain:
            other = of_all if name.startswith("2.") else plain
            assert torch.equal(found[name], other[name])
    assert len(after(of=0, weights="binary")["0.weight"][0].abs().unique()) == 1
    assert torch.equal(after(1, of=4, head_step=0.0)["4.weight"], seeded(mlp)[4].weight)


def test_a_group_without_all_of_a_layer_keeps_the_rest():
    """A layer's settings are those of its weights."""
    model = seeded(mlp)
    bcd = BCD(model, 10, groups=[{"params": [model[0].weight], "move": 0.02}])
    assert bcd.blocks["0"].group["move"] == 0.02
    assert [len(group["params"]) for group in bcd.param_groups] == [1, 5]


def test_frozen_layers_are_left_alone():
    X, y = problem()
    model = seeded(mlp)
    model[2].requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    bcd = train_batches(model, X, y, 60)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith("2.")
    assert set(bcd.blocks) == {"0", "4"}
    assert error(model, X, y) < 0.15


def test_a_frozen_bias_is_left_alone():
    X, y = problem()
    model = seeded(mlp)
    model[0].bias.requires_grad_(False)
    before = model[0].bias.clone()
    train_batches(model, X, y, 10)
    assert torch.equal(model[0].bias, before)


def test_the_window_is_there_from_the_first_batch_on():
    model = seeded(mlp)
    bcd = BCD(model, 10, window=0.25)
    assert float(model[1].window) == 0.25
    train_batch(model, bcd, *problem())
    assert float(model[1].window) == 0.25


# --- other people's code


def test_a_trained_model_can_be_pickled():
    model = seeded(mlp)
    train_batches(model, *problem(), 20)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    X, y = problem()
    assert error(torch.load(file, weights_only=False), X, y) == error(model, X, y)


def test_a_copy_of_the_model_is_not_observed():
    X, _ = problem()
    model = seeded(mlp)
    bcd = BCD(model, 20)
    copy.deepcopy(model)(X)
    assert not bcd.observer.seen


def test_layers_may_be_called_by_keyword():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.step, self.b = nn.Linear(20, 16), Step(), nn.Linear(16, 3)

        def forward(self, x):
            return self.b(input=self.step(self.a(input=x)))

    model = seeded(Named)
    train_batches(model, *problem(), 12, keep=0.5)
    assert model.a.out_features == model.b.in_features == 8


def test_attention_is_left_to_adam():
    class Attentive(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.step, self.head = nn.Linear(5, 16), Step(dim=-1), nn.Linear(16, 3)
            self.attend = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            bits = self.step(self.a(x.view(-1, 4, 5)))
            return self.head(self.attend(bits, bits, bits)[0].mean(dim=1))

    bcd = train_batches(seeded(Attentive), *problem(), 12)
    assert set(bcd.blocks) == {"a", "head"}


def test_parametrized_layers_are_left_to_adam():
    X, y = problem()
    model = seeded(mlp)
    nn.utils.parametrizations.weight_norm(model[2])
    bcd = train_batches(model, X, y, 60)
    assert set(bcd.blocks) == {"0", "4"}
    assert error(model, X, y) < 0.15


@pytest.mark.parametrize("spoilt", ["inputs", "gradients"])
def test_a_batch_that_is_skipped_leaves_nothing(spoilt):
    """As loops do where inputs or gradients are not finite."""
    X, y = problem()
    model = seeded(mlp)
    bcd = BCD(model, 40)
    for k in range(40):
        bcd.zero_grad()
        bad = k in (0, 1, 12, 13)  # before batches that are observed
        factor = torch.nan if bad else 1
        loss = cross_entropy(model(X * factor if spoilt == "inputs" else X), y)
        if spoilt == "gradients" or not bad:
            (loss * factor).backward()
        if not bad:
            bcd.step()
    hidden = [block for block in bcd.blocks.values() if block.hidden]
    assert all(bool(block.residuals.basis.isfinite().all()) for block in hidden)
    assert error(model, X, y) < 0.15


def test_other_forward_passes_leave_nothing():
    X, y = problem()
    models = [seeded(mlp) for _ in range(2)]
    for stray, model in enumerate(models):
        bcd = BCD(model, 12)
        for k in range(12):
            if stray and k:
                model(100 * X)
            bcd.zero_grad()
            cross_entropy(model(X), y).backward()
            if stray:
                model(100 * X)
            bcd.step()
    for plain, other in zip(*(model.state_dict().values() for model in models), strict=True):
        assert torch.equal(plain, other)


def test_a_forward_pass_before_the_training_is_made_up_for():
    X, y = problem()
    models = [seeded(mlp) for _ in range(2)]
    for tried, model in enumerate(models):
        bcd = BCD(model, 40)
        if tried:
            model(torch.zeros(2, 20))
        train_batch(model, bcd, X, y)
    for plain, other in zip(*(model.state_dict().values() for model in models), strict=True):
        assert torch.allclose(plain, other, atol=1e-4)


def test_the_first_batch_may_come_in_parts():
    """Whose pre-activations count as if all of them came after the biases were set."""
    X, y = problem()
    found = []
    for parts in (1, 4):
        model = seeded(mlp)
        bcd = BCD(model, 40)
        for rows in torch.arange(len(X)).chunk(parts):
            (cross_entropy(model(X[rows] + 30), y[rows]) / parts).backward()
        bcd.step()
        found.append(bcd.blocks["0"].variance)
    assert torch.allclose(*found, rtol=0.02)


def test_gradients_may_be_reset_between_forward_and_backward():
    """As Lightning does."""
    X, y = problem()
    models = [seeded(mlp) for _ in range(2)]
    for late, model in enumerate(models):
        bcd = BCD(model, 12)
        for _ in range(12):
            for part, rows in enumerate(torch.arange(len(X)).chunk(2)):
                if not late and not part:
                    bcd.zero_grad()
                loss = cross_entropy(model(X[rows]), y[rows]) / 2
                if late and not part:
                    bcd.zero_grad()
                loss.backward()
            bcd.step()
    for early, late in zip(*(model.state_dict().values() for model in models), strict=True):
        assert torch.equal(early, late)


def test_a_step_on_a_parameter_gathers_no_hooks():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.step = nn.Parameter(torch.randn(20, 8)), Step()
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(x @ self.step(self.table))

    model = seeded(Table)
    train_batches(model, *problem(), 20)
    assert not model.table._backward_hooks


def test_a_model_and_its_bcd_are_let_go():
    model = seeded(mlp)
    bcd = train_batches(model, *problem(), 3)
    gone = weakref.ref(model)
    del model, bcd
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("batches", [0, 4, 10])
def test_copies_of_an_observed_model_can_be_pickled(batches):
    model = seeded(mlp)
    bcd = BCD(model, 20)
    for _ in range(batches):
        train_batch(model, bcd, *problem())
    assert model[0]._forward_hooks  # the next batch is observed
    for copied in (copy.deepcopy(model), torch.optim.swa_utils.AveragedModel(model), model):
        file = io.BytesIO()
        torch.save(copied, file)
        file.seek(0)
        torch.load(file, weights_only=False)(problem()[0])
    assert not bcd.observer.seen


def test_a_model_outlives_its_bcd():
    model = seeded(mlp)
    bcd = BCD(model, 20)
    del bcd
    gc.collect()
    assert not any(module._forward_hooks for module in model.modules())


def test_layers_that_start_at_zero_do_no_harm():
    X, y = problem()
    model = seeded(mlp)
    model[2].weight.data[:10].zero_()
    train_batches(model, X, y, 30)
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_observed_batches_are_let_go():
    X, y = problem()
    model, kept = seeded(mlp), []
    bcd = BCD(model, 100)
    gc.collect()
    gc.disable()
    try:
        for _ in range(12):
            bcd.zero_grad()
            cross_entropy(model(X), y).backward()
            kept += map(weakref.ref, bcd.observer.seen.values())
            bcd.step()
        assert kept
        assert not any(seen() for seen in kept)
    finally:
        gc.enable()


def test_a_model_that_is_converted_after_its_bcd():
    X, y = problem()
    model = seeded(mlp)
    bcd = BCD(model, 10)
    train_batch(model, bcd, X, y)
    model.double()
    with refused("0 is torch.float64 on cpu now, and was torch.float32 on cpu"):
        train_batch(model, bcd, X.double(), y)
