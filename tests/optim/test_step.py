"""Step: its bits, and its backward pass as the U block."""

import math

import pytest
import torch

from optim.training import error, mlp, problem, seeded, train_batches
from zeroone.nn import U_RULES, Step, register_u_rule, step
from zeroone.utils.checks import InputError


@pytest.fixture
def normal(rng):
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


def residual_through(module, U, D):
    """What the backward pass makes of the residual D of the bits."""
    U = U.clone().requires_grad_()
    module(U).backward(-D)
    return -U.grad


# --- forward


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("grad", [False, True])
def test_bits_are_1_above_0_and_0_elsewhere(dtype, grad):
    U = torch.tensor([[1e-7, 3.0, math.inf, 0.0, -0.0, -1e-7, -2.0, -math.inf, math.nan]])
    U = U.to(dtype).requires_grad_(grad)
    for bits in (Step()(U), step(U)):
        assert bits.dtype == dtype
        assert bits.tolist() == [[1, 1, 1, 0, 0, 0, 0, 0, 0]]
        assert bits.requires_grad == grad


def test_scale_and_window_have_no_part_in_the_bits(normal):
    U, module = normal(5, 3), Step()
    module.scale, module.window = torch.tensor([0.1, 1.0, 7.0]), torch.tensor(0.01)
    assert torch.equal(module(U), (U > 0).double())
    assert torch.equal(module(U.clone().requires_grad_()), (U > 0).double())
    assert not module.state_dict()


def test_other_axes_and_no_samples():
    assert Step()(torch.randn(0, 4, requires_grad=True)).shape == (0, 4)
    assert Step(dim=-1)(torch.randn(2, 5, 4, requires_grad=True)).shape == (2, 5, 4)


# --- backward


def test_a_residual_passes_inside_the_window(normal):
    U, D = normal(50, 4), normal(50, 4)
    inside = U.abs() <= 1
    assert torch.equal(residual_through(Step(), U, D), D * inside)
    assert torch.equal(residual_through(lambda U: step(U, window=0.3), U, D), D * (U.abs() <= 0.3))
    edge = torch.tensor([[1.0, -1.0, 1.0001]], dtype=torch.float64)
    assert residual_through(Step(), edge, torch.ones_like(edge)).tolist() == [[1, 1, 0]]


@pytest.mark.parametrize("rule", ["expected", "as a rule"])
@pytest.mark.parametrize(("dim", "shape"), [(1, (1, 4, 1)), (-1, (1, 1, 4))])
def test_the_window_counts_in_units_of_each_scale(normal, monkeypatch, rule, dim, shape):
    monkeypatch.setitem(U_RULES, "as a rule", U_RULES["expected"])
    module, scale = Step(rule, dim=dim), torch.tensor([0.1, 1.0, 2.0, 10.0], dtype=torch.float64)
    module.scale, module.window = scale, torch.tensor(0.7, dtype=torch.float64)
    U, D = 3 * normal(20, 4, 4), normal(20, 4, 4)
    scale = scale.view(shape)
    expected = torch.where((U / scale).abs() <= 0.7, D / scale, 0.0)
    torch.testing.assert_close(residual_through(module, U, D), expected)


def test_the_scale_is_a_running_spread():
    module, first, second = Step(), torch.tensor([4.0, 9.0]), torch.tensor([16.0, 1.0])
    module.take_scale(first, 0.9)
    assert torch.equal(module.scale, first.sqrt())
    module.take_scale(second, 0.9)
    torch.testing.assert_close(module.scale.square(), 0.9 * first + 0.1 * second)
    module.take_scale(torch.tensor([2.0]), 0.9)  # units have left
    assert torch.equal(module.scale, torch.tensor([2.0]).sqrt())


def test_nothing_is_differentiated(normal):
    """Finite differences of the bits are 0; what passes back is a residual all the same."""
    U = normal(6, 4)
    assert torch.equal(Step()(U + 1e-9), Step()(U))
    assert float(residual_through(Step(), U, torch.ones_like(U)).abs().max()) > 0


# --- several thresholds


@pytest.mark.parametrize(("dim", "shape"), [(1, (6, 3, 2, 2)), (1, (6, 3)), (-1, (6, 2, 3))])
@pytest.mark.parametrize("rule", ["expected", "half"])
def test_each_threshold_is_a_step_of_its_own(normal, dim, shape, rule):
    values, scale = (-0.5, 0.0, 0.75), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    several = Step(rule, dim=dim, thresholds=values)
    several.scale, several.window = scale, torch.tensor(0.6, dtype=torch.float64)
    single = Step(rule, dim=dim)
    single.scale, single.window = several.scale, several.window
    U = normal(*shape)
    expected = torch.cat([single(U - value) for value in values], dim)
    assert torch.equal(several(U), expected)
    D = normal(*expected.shape) / 6
    E = sum(
        residual_through(single, U - value, part)
        for value, part in zip(values, D.chunk(3, dim), strict=True)
    )
    torch.testing.assert_close(residual_through(several, U, D), E)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_normalised_thresholds_reach_as_far_as_the_window(dtype):
    """The bounds count: |u - threshold| <= window * scale, for one scale of all units."""
    U = torch.tensor([[-1.5, -0.5, 0.0, 0.5, 1.5, 1.515625, -1.515625]], dtype=dtype)
    D = torch.ones(1, 14, dtype=dtype)
    several = Step(thresholds=(-0.5, 0.5))
    assert residual_through(several, U, D).tolist() == [[1, 2, 2, 2, 1, 0, 0]]
    wide = U.clone().requires_grad_()
    step(wide, 0.5, 2.0, thresholds=(-0.5, 0.5)).backward(D)
    assert wide.grad.tolist() == [[0.5, 1, 1, 1, 0.5, 0, 0]]


@pytest.mark.parametrize("values", [(), (1.0, 0.0), (0.0, 0.0), (0.0, math.nan), (math.inf,)])
def test_thresholds_rise(values):
    with pytest.raises(InputError, match="thresholds must be finite and rise"):
        Step(thresholds=values)


# --- U rules


def lemma_2(D, B, window):
    """One bit at a time: flip iff V crosses 1/2 and b is near enough; then to the threshold."""
    E = torch.zeros_like(B)
    for i in range(len(B)):
        for j in range(B.shape[1]):
            b, on = float(B[i, j]), float(B[i, j]) > 0
            wanted = (1.0 if on else 0.0) + len(B) * float(D[i, j])
            crosses = wanted < 0.5 if on else wanted > 0.5
            if crosses and abs(b) <= window:
                E[i, j] = -b / len(B)
    return E


@pytest.mark.parametrize("window", [0.2, 1.0, 3.0])
def test_half_is_lemma_2(normal, window):
    D, B = normal(30, 6) / 30, normal(30, 6)
    E = U_RULES["half"](D, B, torch.tensor(window).double())
    torch.testing.assert_close(E, lemma_2(D, B, window))
    assert 0 < int((E != 0).sum()) < E.numel()


def test_half_flips_what_lemma_2_flips():
    B = torch.tensor([[-0.5, -0.5, 0.5, -2.0, 0.5]], dtype=torch.float64)
    D = torch.tensor([[0.4, 0.9, -0.9, 0.9, 0.9]], dtype=torch.float64)
    # too small, on, off, too far, stays
    flips = U_RULES["half"](D, B, torch.ones(()).double())
    assert flips.tolist() == [[0.0, 0.5, -0.5, 0.0, 0.0]]


def test_expected_is_the_expectation_of_drawn(normal):
    torch.manual_seed(0)
    D, B, window = normal(4, 5), normal(4, 5), torch.ones(()).double()
    E = U_RULES["expected"](D, B, window)
    assert torch.equal(E, torch.where(B.abs() <= 1, D, 0.0))
    draws = torch.stack([U_RULES["drawn"](D, B, window) for _ in range(10_000)])
    scale = 10 * E[E != 0].abs().mean()
    assert float((draws.abs()[draws != 0] - scale).abs().max()) < 1e-12
    deviation = (draws.mean(dim=0) - E).abs() / (scale * E.abs() / 10_000).sqrt().clamp_min(1e-12)
    assert float(deviation.max()) < 4
    share = (draws != 0).double().mean() / (E != 0).double().mean()
    assert float(share) == pytest.approx(0.1, abs=0.01)


def test_drawn_never_flips_with_more_than_certainty():
    D, B = torch.zeros(20, 10), torch.zeros(20, 10)
    D[:, 0], D[0, 0] = 1e-3, 100.0  # ten times the mean is less than the largest
    E = U_RULES["drawn"](D, B, torch.ones(()))
    assert float(E[0, 0]) == pytest.approx(float(10 * D.sum() / 20))


@pytest.mark.parametrize("rule", ["expected", "drawn", "half"])
def test_nothing_wanted_or_nothing_near_gives_no_residual(normal, rule):
    D, B, window = normal(4, 5), normal(4, 5), torch.ones(()).double()
    assert float(U_RULES[rule](D * 0, B, window).abs().max()) == 0
    assert float(U_RULES[rule](D, B + 100, window).abs().max()) == 0


@pytest.mark.parametrize("rule", ["expected", "drawn"])
def test_rules_train(rule):
    torch.manual_seed(0)
    X, y = problem()
    model = seeded(mlp, rule=rule)
    train_batches(model, X, y, 100)
    assert error(model, X, y) < 0.05


def test_a_rule_of_ones_own_is_one_function(monkeypatch):
    X, y = problem()
    monkeypatch.setitem(U_RULES, "soft", None)  # so that it is forgotten in the end

    @register_u_rule("soft")
    def soft(D, B, window):
        return D * (1 - B.abs() / window).clamp_min(0)

    assert Step("soft").extra_repr() == "rule='soft'"
    model = seeded(mlp, rule="soft")
    before = error(model, X, y)
    train_batches(model, X, y, 100)
    assert error(model, X, y) < 0.05 < before
    U = torch.tensor([[0.5, -0.25, 2.0]])
    assert residual_through(Step("soft"), U, torch.ones(1, 3)).tolist() == [[0.5, 0.75, 0.0]]


def test_an_unknown_rule_is_refused():
    with pytest.raises(InputError, match=r"unknown rule 'exepcted'.*Did you mean 'expected'"):
        Step("exepcted")
