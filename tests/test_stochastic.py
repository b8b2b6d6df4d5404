"""Stochastic BCD: each block against brute force, pruning, and a whole batch."""

import numpy as np
import pytest
import torch

from zeroone import TrainSettings, train
from zeroone.data.embedded import load_embedded
from zeroone.heads import HardmaxMSE, SoftmaxCE
from zeroone.layers import LayerPlan
from zeroone.network import Network
from zeroone.operators import Dense
from zeroone.ops import step
from zeroone.pooling import AvgPool
from zeroone.scaling import Scaling
from zeroone.solvers.linalg import bordered_inverse, damped_inverse
from zeroone.solvers.metric import Metric
from zeroone.solvers.projection import project
from zeroone.solvers.pruning import kept_share, removal_costs, without
from zeroone.solvers.signals import u_drawn, u_expected, u_half, v_one_step, v_solved
from zeroone.solvers.stochastic import StochasticBCD
from zeroone.solvers.stochastic_settings import StochasticSettings


@pytest.fixture
def normal(rng):
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


def dense(normal, n_out, n_in, bias=True):
    return Dense(normal(n_out, n_in + bias), n_in, bias)


# --- the V and U blocks


def test_one_step_is_minus_the_gradient_of_the_v_block(normal):
    op, E = dense(normal, 4, 6), normal(5, 4)
    D = torch.zeros(5, 6, dtype=torch.float64, requires_grad=True)
    (E - D @ op.linear.T).square().sum().div(2).backward()
    assert torch.allclose(v_one_step(E, op), -D.grad)


def test_the_solved_v_block_minimises(normal):
    op, E = dense(normal, 4, 6), normal(5, 4)
    rho = 10.0 * float(op.linear.square().sum()) / 6
    stacked = torch.cat([op.linear, rho**0.5 * torch.eye(6, dtype=torch.float64)])
    targets = torch.cat([E, torch.zeros(5, 6, dtype=torch.float64)], dim=1)
    expected = torch.linalg.lstsq(stacked, targets.T).solution.T
    assert torch.allclose(v_solved(E, op, 10.0), expected)
    assert float(v_solved(E, Dense(op.weight * 0, 6, True), 10.0).abs().max()) == 0


def test_expected_rounding_keeps_to_the_window_and_the_flip_rate(normal):
    D, B = normal(50, 20), normal(50, 20)
    E = u_expected(D, B, flip_rate=0.2, margin=0.5, window=1.0)
    inside = B.abs() <= 1
    assert bool((E[~inside] == 0).all())
    assert float(E[inside].abs().mean()) == pytest.approx(0.2 * 0.5)
    ratio = E[inside] / D[inside]
    assert torch.allclose(ratio, ratio[0])
    assert float(ratio[0]) > 0
    D[7:] = 0  # a sample that asks for nothing does not make the others flip more
    alone = u_expected(D, B, flip_rate=0.2, margin=0.5, window=1.0)[:7]
    assert float(alone[inside[:7]].abs().mean()) == pytest.approx(0.2 * 0.5)


def test_drawn_rounding_has_that_expectation(normal, rng):
    D, B = normal(4, 5), normal(4, 5)
    draws = torch.stack([u_drawn(D, B, 0.2, 0.5, 1.0, rng) for _ in range(20_000)])
    assert set(draws.unique().tolist()) <= {-0.5, 0.0, 0.5}
    expected = u_expected(D, B, 0.2, 0.5, 1.0).clamp(-0.5, 0.5)
    assert float((draws.mean(dim=0) - expected).abs().max()) < 0.02


def test_nothing_wanted_or_nothing_near_gives_no_residual(normal, rng):
    D, B = normal(4, 5), normal(4, 5)
    for U in (u_expected(D * 0, B, 0.2, 0.5, 1.0), u_expected(D, B + 100, 0.2, 0.5, 1.0)):
        assert float(U.abs().max()) == 0
    assert float(u_drawn(D * 0, B, 0.2, 0.5, 1.0, rng).abs().max()) == 0


def test_rounding_at_one_half_flips_what_lemma_2_flips():
    B = torch.tensor([[-0.5, -0.5, 0.5, -2.0, 0.5]], dtype=torch.float64)
    D = torch.tensor([[0.4, 0.9, -0.9, 0.9, 0.9]], dtype=torch.float64)
    # too small, on, off, too far, stays; a flipped bit ends just beyond the threshold
    assert u_half(D, B, window=1.0).tolist() == [[0.0, 0.5, -0.5, 0.0, 0.0]]


def test_head_residuals(normal):
    B, y = normal(7, 4), torch.tensor([0, 1, 2, 3, 0, 1, 2])
    U = B.clone().requires_grad_()
    torch.nn.functional.cross_entropy(U, y, label_smoothing=0.3, reduction="sum").backward()
    assert torch.allclose(SoftmaxCE().residual(B, y, 0.3), -U.grad)
    head = HardmaxMSE(0.5)
    assert torch.allclose(B + head.residual(B, y), head.u_step(B, y, 1e-9))
    scores = torch.tensor([[3.0, 1.0, 0.0], [1.0, 0.8, 0.0]], dtype=torch.float64)
    pulled = head.residual(scores, torch.tensor([0, 0]), smoothing=0.1)
    assert pulled[0].tolist() == pytest.approx([-0.1 * 1.5, 0, 0])  # leads by 2, 0.5 is enough
    assert pulled[1].tolist() == pytest.approx([0.15, -0.15, 0])


# --- the W block's metric


@pytest.mark.parametrize("bias", [False, True])
def test_a_step_in_the_metric_is_the_bordered_inverse(normal, bias):
    op, V, E = dense(normal, 4, 6, bias), normal(9, 6), normal(9, 4)
    inputs = torch.cat([V, torch.ones(9, int(bias), dtype=torch.float64)], dim=1)
    M = inputs.T @ inputs / 9
    covariance = M[:6, :6] - (torch.outer(V.mean(0), V.mean(0)) if bias else 0)
    M[:6, :6] += 2.0 * covariance.diagonal().mean() * torch.eye(6, dtype=torch.float64)
    expected = op.weight + 0.3 * E.T @ inputs @ torch.linalg.inv(M)
    metric = Metric(2.0, bias=bias)
    metric.observe(0, op, V)
    metric.refresh()
    assert torch.allclose(metric.inverse(), torch.linalg.inv(M))
    metric.add_step(op, E, V, 0.3)
    assert torch.allclose(op.weight, expected)


def test_the_bias_is_not_damped(normal):
    R, m = damped_inverse(bordered(normal(30, 3) + 5), 1e6, bias=True)
    assert float(R.abs().max()) < 1e-4
    assert float(bordered_inverse(R, m)[-1, -1]) == pytest.approx(1.0, abs=1e-2)


def bordered(V):
    inputs = torch.cat([V, torch.ones(len(V), 1, dtype=V.dtype)], dim=1)
    return inputs.T @ inputs / len(V)


def test_the_moment_is_a_running_mean(normal):
    op, metric = dense(normal, 2, 3), Metric(1.0, bias=True)
    batches = [normal(40, 3) for _ in range(31)]
    for k, V in enumerate(batches):
        metric.observe(k, op, V)
    A = bordered(batches[0])
    for k in (*range(1, 10), 10, 20, 30):
        decay = min(0.98, (k + 1) / (k + 10))
        A = decay * A + (1 - decay) * bordered(batches[k])
    assert torch.allclose(metric.moment, A)


# --- pruning


def test_removing_columns_is_a_constrained_minimum(normal):
    W, root = normal(4, 6), normal(12, 6)
    M = root.T @ root
    P, gone = torch.linalg.inv(M), torch.tensor([1, 4])
    X = without(W, P, gone)
    assert X[:, gone].tolist() == torch.zeros(4, 2).tolist()
    stay = torch.tensor([0, 2, 3, 5])
    # The rest minimises tr((X - W) M (X - W)^T): its gradient vanishes on the columns that stay.
    assert float(((X - W) @ M)[:, stay].abs().max()) < 1e-9
    for j, cost in enumerate(removal_costs(W, P)):
        D = without(W, P, torch.tensor([j])) - W
        assert float(cost) == pytest.approx(float((D @ M * D).sum()))
    costs = removal_costs(W[:, :4], P, 2)  # two filters, and free columns
    for j, cost in enumerate(costs):
        D = without(W, P, torch.tensor([2 * j, 2 * j + 1])) - W
        assert float(cost) == pytest.approx(float((D @ M * D).sum()))
    P[:2] = 0  # the first one was removed
    P[:, :2] = 0
    assert removal_costs(W[:, :4], P, 2).tolist() == [0, pytest.approx(float(costs[1]))]
    assert removal_costs(W, P)[:2].tolist() == [0, 0]


def test_the_schedule_of_keep():
    assert kept_share(0.5, 0.0) == kept_share(0.5, 0.1) == 1.0
    assert kept_share(0.5, 0.6) == kept_share(0.5, 1.0) == 0.5
    shares = [kept_share(0.5, t / 20) for t in range(21)]
    assert shares == sorted(shares, reverse=True)


# --- a whole batch


def problem(n=200, d=20, classes=3, seed=0):
    rng = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=rng)
    teacher = torch.randn(d, classes, generator=rng)
    return X, (X @ teacher).argmax(dim=1)


def fitted(n_batches=300, head=None, hidden=(40, 30), bias=True, dtype=torch.float32, **options):
    X, y = problem()
    widths = [X.shape[1], *hidden, 3]
    network = Network.dense(widths, head or SoftmaxCE(), bias=bias, dtype=dtype)
    solver = StochasticBCD(network, StochasticSettings(**options), n_batches)
    rng = torch.Generator().manual_seed(1)
    for _ in range(n_batches):
        solver.update(X.to(dtype), y, rng)
    wrong = network.forward(X.to(dtype)).argmax(dim=1) != y
    return solver, float(wrong.float().mean())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, 0.02),
        ({"head": HardmaxMSE(1.0)}, 0.02),
        ({"u_step": "drawn"}, 0.05),
        ({"v_step": "solve"}, 0.05),
        ({"bias": False}, 0.05),
        ({"dtype": torch.float64}, 0.02),
        ({"keep": 0.5}, 0.05),
    ],
)
def test_it_fits_what_a_teacher_says(options, error):
    assert fitted(**options)[1] <= error


def test_only_the_product_of_flip_rate_margin_and_step_counts():
    """Why ``reproduce parameters`` has one row for the three; halves are exact."""
    defaults = StochasticSettings()
    halved = [
        fitted(20, **{name: getattr(defaults, name) / 2})[0].network
        for name in ("flip_rate", "flip_margin", "step")
    ]
    as_is = fitted(20)[0].network
    for layer in range(3):
        first, *others = (network.operators[layer].weight for network in halved)
        assert all(torch.equal(first, other) for other in others)
        assert not torch.equal(first, as_is.operators[layer].weight)


def test_hidden_layers_move_unless_rounding_is_at_one_half():
    """E7: with the printed U block no hidden weight learns anything."""
    start = Network.dense([20, 40, 30, 3], SoftmaxCE())
    X, _ = problem()

    def flipped(**options):
        after = fitted(**options)[0].network.hidden_bits(X)
        before = start.hidden_bits(X)
        return min(float((a != b).float().mean()) for a, b in zip(after, before, strict=True))

    assert flipped(u_step="half") < 0.01
    assert flipped() > 0.1


def test_one_batch_by_hand(normal):
    """The blocks in their order, written out once more from the formulas."""
    X, y = normal(9, 4), torch.arange(9) % 3
    network = Network.dense([4, 5, 3], SoftmaxCE(), dtype=torch.float64)
    W1, W2 = (op.weight.clone() for op in network.operators)
    StochasticBCD(network, StochasticSettings(), 10).update(X, y, torch.Generator())

    def moment(V):
        inputs = torch.cat([V, torch.ones(9, 1, dtype=V.dtype)], dim=1)
        M, variance = inputs.T @ inputs / 9, V.var(dim=0, correction=0).mean()
        M[:-1, :-1] += 4.0 * variance * torch.eye(V.shape[1], dtype=V.dtype)
        return inputs, M

    inputs1, M1 = moment(X)
    B1 = inputs1 @ W1.T
    inputs2, M2 = moment((B1 > 0).double())
    targets = 0.9 * torch.eye(3, dtype=torch.float64)[y] + 0.1 / 3
    E2 = targets - torch.softmax(inputs2 @ W2.T, dim=1)
    D = E2 @ W2[:, :-1]
    inside = B1.abs() <= 1
    E1 = 0.5 * 0.2 * D * inside / (D * inside).abs().sum() * inside.sum()
    new2 = W2 + 0.3 / 9 * E2.T @ inputs2 @ torch.linalg.inv(M2)
    new1 = W1 + 1.0 / 9 * E1.T @ inputs1 @ torch.linalg.inv(M1)
    new1 /= B1.std(dim=0, correction=0)[:, None]
    assert torch.allclose(network.operators[0].weight, new1)
    assert torch.allclose(network.operators[1].weight, new2)


def test_the_schedules():
    solver = StochasticBCD(Network.dense([4, 5, 3], SoftmaxCE()), StochasticSettings(), 10)
    seen = []
    for solver.k in (0, 5, 10):
        seen.append((solver.flip_rate, solver.window))
    assert seen == [(0.2, 1.0), (0.1, 0.75), (0.0, 0.5)]


def test_the_metric_follows_the_inputs_to_the_end():
    X, y = problem()
    solver = StochasticBCD(Network.dense([20, 40, 3], SoftmaxCE()), StochasticSettings(), 200)
    inverses = []
    for _ in range(151):
        solver.update(X, y, torch.Generator())
        inverses.append(solver.metrics[1].R)
    for k in (25, 50, 100, 150):
        assert not torch.equal(inverses[k], inverses[k - 1])
    assert torch.equal(inverses[90], inverses[50])


def test_units_have_unit_spread_after_training():
    X, _ = problem()
    B = fitted()[0].network.operators[0].apply(X)
    assert float(B.var(dim=0, correction=0).log().abs().max()) < 0.5


def test_a_damping_too_small_for_the_dtype_is_raised():
    V = torch.ones(50, 3) * torch.randn(50, 1, generator=torch.Generator().manual_seed(0))
    op, metric = Dense(torch.zeros(2, 4), 3, True), Metric(1e-12, bias=True)
    metric.observe(0, op, V)
    metric.refresh()
    assert bool(torch.isfinite(metric.R).all())


def test_no_hidden_layer_is_logistic_regression():
    assert fitted(hidden=())[1] <= 0.05


def test_normalising_rows_changes_no_bit(normal):
    network = Network.dense([20, 40, 3], SoftmaxCE(), dtype=torch.float64)
    solver = StochasticBCD(network, StochasticSettings(), 10)
    X, _ = problem()
    B = network.operators[0].apply(X.double()) * 5
    (spread,) = solver._spreads([B], solver._begin_spreads([B], None)(), len(B))
    assert torch.equal(step(B / spread), step(B))
    assert torch.allclose((B / spread).var(dim=0, correction=0), torch.ones(40).double())
    flat_values = [torch.ones(8, 4)]
    (flat,) = solver._spreads(flat_values, solver._begin_spreads(flat_values, None)(), 8)
    assert flat.tolist() == [1.0] * 4  # a unit that never varies


def test_keep_removes_units_physically_and_lam_empties_columns():
    network = fitted(keep=0.5)[0].network
    assert [op.n_out for op in network.operators] == [20, 15, 3]
    solver, _ = fitted(keep=0.01)
    assert [op.n_out for op in solver.network.operators] == [1, 1, 3]
    solver, error = fitted(lam=0.2)
    network = solver.network
    assert network.operators[0].n_out < 40
    assert error < 0.1
    assert [len(units) for units in solver.units] == [op.n_out for op in network.operators[:-1]]
    harder, _ = fitted(lam=0.3)
    weights = harder.network.operators[0].weight
    assert 1 < len(weights) < network.operators[0].n_out  # a price, not a cliff
    dead = harder.metrics[0].dead
    assert 0 < len(dead) < 20
    assert float(weights[:, dead].abs().max()) == 0


def test_the_cheapest_units_leave():
    X, y = problem()
    network = Network.dense([20, 10, 3], SoftmaxCE())
    network.operators[1].weight[:, [2, 5, 7]] = 1e-6
    solver = StochasticBCD(network, StochasticSettings(keep=0.7, top_step=1e-9), 10)
    for _ in range(10):
        solver.update(X, y, torch.Generator())
    assert solver.units[0].tolist() == [0, 1, 3, 4, 6, 8, 9]


def test_the_state_is_all_that_the_next_batch_depends_on():
    X, y = problem()
    for options in ({}, {"keep": 0.5}, {"lam": 0.2}, {"u_step": "drawn"}):
        settings = StochasticSettings(**options)
        whole = StochasticBCD(Network.dense([20, 40, 30, 3], SoftmaxCE()), settings, 120)
        for k in range(120):
            if k == 61:
                state = {name: T.clone() for name, T in whole.state().items()}
            whole.update(X, y, torch.Generator().manual_seed(k))
        other = StochasticBCD(Network.dense([20, 40, 30, 3], SoftmaxCE(), seed=9), settings, 120)
        for k in range(120):  # it may be anywhere, and smaller than it was then
            other.update(X, y, torch.Generator().manual_seed(k + 500))
        other.restore(state)
        for k in range(61, 120):
            other.update(X, y, torch.Generator().manual_seed(k))
        for a, b in zip(whole.network.operators, other.network.operators, strict=True):
            assert torch.equal(a.weight, b.weight)


def test_a_batch_of_one_and_a_dead_network_do_no_harm():
    X, y = problem()
    network = Network.dense([20, 5, 3], SoftmaxCE())
    network.operators[0].weight.zero_()
    solver = StochasticBCD(network, StochasticSettings(), 50)
    for k in range(50):
        solver.update(X[k : k + 1] * (k > 25), y[k : k + 1], torch.Generator())
    assert all(bool(torch.isfinite(op.weight).all()) for op in network.operators)


def test_training_needs_no_autograd():
    """Nothing is differentiated: it works where torch forbids it, with the same result."""
    with torch.inference_mode():
        inside = fitted(n_batches=40)[0].network
        data = load_embedded("digits")
        settings = TrainSettings.from_options(hidden=(20,), epochs=3)
        assert train(data.X, data.y, settings).record["result"]["train_error"] < 0.5
    outside = fitted(n_batches=40)[0].network
    for a, b in zip(inside.operators, outside.operators, strict=True):
        assert np.array_equal(a.weight.numpy(), b.weight.numpy())


def test_the_residual_of_a_mean_is_shared_by_the_entries_that_receive_it(monkeypatch, rng):
    X = torch.randn(40, 36, generator=rng)
    y = torch.arange(40) % 3

    def weights(conv_step):
        plans = [LayerPlan.parse("conv3x3:4:average2")]
        network = Network.build((1, 6, 6), plans, 3, SoftmaxCE(), seed=1)
        StochasticBCD(network, StochasticSettings(conv_step=conv_step), 10).update(X, y, rng)
        return network.operators[0].weight

    shared = weights(8.0)
    monkeypatch.setattr(AvgPool, "receivers", 1)
    assert torch.allclose(shared, weights(2.0))
    assert not torch.allclose(shared, weights(8.0))


def test_the_last_step_falls_if_it_is_told_to():
    network = Network.dense([4, 3, 2], SoftmaxCE())
    for end, sizes in ((None, [0.3, 0.3, 0.3]), (0.1, [0.3, 0.2, 0.1]), (0.0, [0.3, 0.15, 0.0])):
        solver = StochasticBCD(network, StochasticSettings(top_step_end=end), 8)
        found = []
        for k in (0, 4, 8):
            solver.k = k
            found.append(solver.top_step)
        assert found == pytest.approx(sizes)
    # A last step of 0 leaves the last layer alone, and only that.
    V0, y, rng = torch.randn(9, 4), torch.arange(9) % 2, torch.Generator().manual_seed(0)
    solver = StochasticBCD(network, StochasticSettings(top_step_end=0.0), 8)
    solver.update(V0, y, rng)
    solver.k = 8
    before = [op.weight.clone() for op in network.operators]
    solver.update(V0, y, rng)
    assert torch.equal(before[1], network.operators[1].weight)
    with pytest.raises(ValueError, match="top_step_end must be"):
        StochasticSettings(top_step_end=-0.1)


def nearest_ternary(row):
    """By brute force: of the m largest sizes, for every m, the scale that fits best."""
    size = row.abs().sort(descending=True).values
    means = size.cumsum(0) / torch.arange(1, len(size) + 1)
    errors = [
        float((size[:m] - means[m - 1]).square().sum() + size[m:].square().sum())
        for m in range(1, len(size) + 1)
    ]
    return min(errors)


def test_projection_is_near_the_nearest(normal):
    W = torch.cat([normal(20, 30), normal(20, 30) ** 3])
    binary, ternary = project(W, "binary"), project(W, "ternary")
    for row, two, three in zip(W, binary, ternary, strict=True):
        assert len(two.abs().unique()) == 1
        assert len(three.abs().unique()) <= 2
        scale = two.abs()[0]
        best = min(
            float((row - s * row.sign()).square().sum())
            for s in scale * torch.linspace(0.8, 1.2, 41)
        )
        assert float((row - two).square().sum()) <= best * (1 + 1e-6)
        assert float((row - three).square().sum()) < float(row.square().sum())
    errors = (W[:20] - ternary[:20]).square().sum(dim=1).tolist()  # of Gaussian rows
    assert sum(errors) <= 1.03 * sum(map(nearest_ternary, W[:20]))
    assert torch.equal(project(torch.zeros(2, 3), "ternary"), torch.zeros(2, 3))


@pytest.mark.parametrize("weights", ["ternary", "binary"])
@pytest.mark.parametrize("options", [{}, {"keep": 0.5}, {"lam": 0.05}], ids=str)
def test_weights_of_few_values_train(weights, options):
    digits = load_embedded("digits")
    settings = TrainSettings.from_options(hidden=(60, 50), epochs=30, weights=weights, **options)
    run = train(digits.X, digits.y, settings, test=digits.test)
    assert run.record["result"]["test_error"] < 0.15
    for op in run.network.operators[:-1]:
        sizes = op.linear.abs()
        alive = sizes.sum(dim=0) > 0 if options else torch.ones(op.linear.shape[1]).bool()
        for row in sizes[:, alive]:
            assert len(row.unique()) <= (1 if weights == "binary" else 2)
    if "keep" in options:
        assert run.record["result"]["active_units"] == [30, 25]


def test_weights_of_few_values_keep_the_mean_of_their_inputs():
    """The bias makes up for the projection: on average, pre-activations stay what they were."""
    digits = load_embedded("digits")
    settings = StochasticSettings(weights="binary")
    scaling = Scaling.fit(torch.from_numpy(digits.X))
    network = Network.dense([64, 20, 10], SoftmaxCE(), scaling=scaling)
    solver = StochasticBCD(network, settings, 10)
    V0 = scaling.apply(torch.from_numpy(digits.X))
    solver.update(V0, torch.from_numpy(digits.y), torch.Generator().manual_seed(0))
    latent, metric = solver.latents["0"], solver.metrics[0]
    torch.testing.assert_close(
        latent.linear @ metric.mean + latent.offset,
        network.operators[0].linear @ metric.mean + network.operators[0].offset,
        rtol=1e-4,
        atol=1e-5,
    )
