"""A training goes on from its state bit for bit."""

import copy
import io

import pytest
import torch
from torch import nn

from optim.modules import Words, sentences
from optim.training import digits, mlp, problem, seeded, train_batch
from zeroone.nn import Step
from zeroone.optim import BCD

TOTAL = 24


def small_mlp():
    return mlp(20, 12, 9, 3)


def normed():
    backbone = [nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6), Step(), nn.AvgPool2d(2)]
    return nn.Sequential(*backbone, nn.Conv2d(6, 8, 2), Step(), nn.Flatten(), nn.Linear(32, 10))


def thermometer():
    norm = nn.BatchNorm1d(12, affine=False)
    step = Step(thresholds=(-0.5, 0.5))
    return nn.Sequential(nn.Linear(20, 12, bias=False), norm, step, nn.Linear(24, 3))


CASES = {
    "dense": (small_mlp, {}),
    "BatchNorm": (normed, {}),
    "tokens": (Words, {}),
    "ternary": (small_mlp, {"weights": "ternary"}),
    "two groups": (small_mlp, {"move": 0.1}),
    "momentum": (small_mlp, {"momentum": 0.9}),
    "thresholds and momentum": (thermometer, {"momentum": 0.9}),
}


def batch(make, k):
    """Batch k, whenever it comes."""
    if make is Words:
        return sentences(40, k)
    X, y, *_ = digits() if make is normed else problem()
    rows = torch.randperm(len(X), generator=torch.Generator().manual_seed(k))[:60]
    return X[rows], y[rows]


def optimizer(model, options, total=TOTAL):
    groups = []
    if "move" in options:  # of one group only
        groups = [{"params": model[2].parameters(), **options}]
        options = {}
    return BCD(model, total, groups=groups, **options)


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def run(model, bcd, make, until):
    while bcd.k < until:
        torch.manual_seed(bcd.k)
        train_batch(model, bcd, *batch(make, bcd.k))


def same(a, b):
    """Of nested dictionaries and lists of tensors."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("name", CASES)
def test_it_resumes_bit_for_bit(name):
    make, options = CASES[name]
    whole = seeded(make)
    bcd, saved = optimizer(whole, options), {}
    for k in (0, 3, 9, 10, 17, TOTAL):
        run(whole, bcd, make, k)
        saved[k] = through_a_file({"model": whole.state_dict(), "bcd": bcd.state_dict()})
    for k in (0, 3, 9, 10, 17):
        model = seeded(make, seed=5)
        again = optimizer(model, options)
        model.load_state_dict(saved[k]["model"])
        again.load_state_dict(saved[k]["bcd"])
        assert same(again.state_dict(), saved[k]["bcd"])
        run(model, again, make, TOTAL)
        assert same(model.state_dict(), saved[TOTAL]["model"]), k
        assert same(again.state_dict(), saved[TOTAL]["bcd"]), k


def test_an_optimizer_may_be_anywhere_before():
    model = seeded(small_mlp)
    bcd = optimizer(model, {})
    state = through_a_file({"model": model.state_dict(), "bcd": bcd.state_dict()})
    other = seeded(small_mlp, seed=3)
    again = optimizer(other, {})
    run(other, again, small_mlp, 6)
    other.load_state_dict(state["model"])
    again.load_state_dict(state["bcd"])
    for m, one in ((model, bcd), (other, again)):
        run(m, one, small_mlp, TOTAL)
    assert same(model.state_dict(), other.state_dict())


def resumed_while_units_leave(options, k):
    """Whether a copy of a smaller model ends as the model does."""
    model = seeded(small_mlp)
    bcd = optimizer(model, options, 40)
    run(model, bcd, small_mlp, k)
    other, state = copy.deepcopy(model), through_a_file(bcd.state_dict())
    again = optimizer(other, options, 40)
    again.load_state_dict(state)
    run(other, again, small_mlp, 40)
    run(model, bcd, small_mlp, 40)
    assert len(model[0].weight) < 12
    return same(model.state_dict(), other.state_dict())


@pytest.mark.parametrize("k", [5, 17])
def test_units_go_on_leaving(k):
    assert resumed_while_units_leave({"keep": 0.5}, k)
    assert resumed_while_units_leave({"keep": 0.5, "weights": "ternary"}, k)


def test_inputs_stay_dead():
    assert resumed_while_units_leave({"lam": 0.35}, 23)


def test_the_state_is_plain():
    """Dictionaries, lists, numbers and tensors, so that it can be read without trust."""

    def plain(value):
        if isinstance(value, dict):
            return all(plain(v) for v in (*value, *value.values()))
        if isinstance(value, list | tuple):
            return all(map(plain, value))
        return value is None or isinstance(value, torch.Tensor | str | int | float | bool)

    model = seeded(small_mlp)
    bcd = optimizer(model, {"keep": 0.5})
    run(model, bcd, small_mlp, 12)
    assert plain(bcd.state_dict())


def test_a_model_in_double_precision_stays_so():
    X, y = problem(torch.float64)
    model = seeded(small_mlp).double()
    bcd = BCD(model, 20)
    for _ in range(12):
        train_batch(model, bcd, X, y)
    again = BCD(model, 20)
    again.load_state_dict(through_a_file(bcd.state_dict()))
    assert all(T.dtype == torch.float64 for T in again.blocks["0"].moments.tensors().values())
    assert same(again.state_dict(), bcd.state_dict())


def test_dropout_resumes_with_its_generator():
    def make():
        return nn.Sequential(nn.Dropout(0.2), *small_mlp())

    model = seeded(make)
    bcd = BCD(model, TOTAL)
    run(model, bcd, small_mlp, 11)
    other = seeded(make, seed=4)
    other.load_state_dict(model.state_dict())
    again = BCD(other, TOTAL)
    again.load_state_dict(copy.deepcopy(bcd.state_dict()))
    for m, one in ((model, bcd), (other, again)):
        run(m, one, small_mlp, TOTAL)
    assert same(model.state_dict(), other.state_dict())
