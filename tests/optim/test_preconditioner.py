"""The preconditioners against dense linear algebra."""

import pytest
import torch

from zeroone.optim.preconditioner import RANK, Diagonal, LowRank, memory, strongest


@pytest.fixture
def normal(rng):
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


def dense(moments):
    """Q of each group, as its definition says."""
    columns, rank = moments.basis.shape[1:]
    P, eye = moments.basis, torch.eye(columns, dtype=torch.float64)
    tail = (moments.total - moments.strength.sum(dim=1)) / max(1, columns - rank)
    Q = (P * moments.strength[:, None]) @ P.mT
    return Q + tail.clamp_min(0)[:, None, None] * (eye - P @ P.mT)


def covariance(V, mean):
    return torch.einsum("gni,gnj->gij", V - mean[:, None], V - mean[:, None]) / V.shape[1]


def formed(solution):
    """G as a matrix."""
    G = torch.zeros_like(solution.grad)
    size = G.new_ones(G.shape[:2])
    solution.add_to(G, None, size)
    return G


def ridge(Q, damping):
    n = Q.shape[-1]
    delta = damping * Q.diagonal(dim1=1, dim2=2).sum(dim=1)
    return Q + delta[:, None, None] * torch.eye(n, dtype=torch.float64)


# --- LowRank: the moments


@pytest.mark.parametrize("columns", [5, RANK, 100, 300])
@pytest.mark.parametrize("centre", [False, True])
def test_data_of_low_rank_are_kept_exactly(normal, columns, centre):
    V = normal(2, 200, 10) @ normal(2, 10, columns) + normal(2, 1, columns) * centre
    moments = LowRank.observe(V, None, 0, centre=centre)
    mean = V.mean(dim=1) if centre else torch.zeros(2, columns).double()
    torch.testing.assert_close(moments.mean, mean)
    torch.testing.assert_close(dense(moments), covariance(V, mean), atol=1e-7, rtol=1e-7)
    assert moments.basis.shape == (2, columns, min(RANK - centre, columns))


@pytest.mark.parametrize("centre", [False, True])
def test_the_moments_are_running_means(normal, centre):
    batches = [normal(1, 40, 12) + k / 10 for k in range(14)]
    moments, mean, Q = None, None, None
    for k, V in enumerate(batches):
        moments = LowRank.observe(V, moments, k, centre=centre)
        keep = min(0.98, (k + 1) / (k + 10)) if k else 0.0
        fresh = V.mean(dim=1) * centre
        mean = fresh if k == 0 else keep * mean + (1 - keep) * fresh
        fresh = (1 - keep) * covariance(V, mean)
        Q = fresh if k == 0 else keep * Q + fresh
    torch.testing.assert_close(moments.mean, mean)
    torch.testing.assert_close(dense(moments), Q)


def test_the_past_fades_slower_and_slower():
    assert [memory(k) for k in (0, 1, 10, 10_000)] == [0, 2 / 11, 11 / 20, 0.98]


def test_of_more_directions_the_strongest_stay(normal):
    V = normal(1, 1000, 100) * torch.linspace(3, 0.1, 100).double()
    moments = LowRank.observe(V, None, 0, centre=True)
    values = torch.linalg.eigvalsh(covariance(V, moments.mean))[0]
    torch.testing.assert_close(moments.strength[0], values[1 - RANK :])
    torch.testing.assert_close(moments.total[0], values.sum())
    torch.testing.assert_close(dense(moments)[0].trace(), values.sum())


def test_both_gram_matrices_give_the_same(normal):
    stack = normal(2, 30, 50)
    for rows in (stack, torch.cat([stack, torch.zeros(2, 40, 50)], dim=1)):  # 30 or 70 rows
        basis, strength = strongest(rows, 10)
        P = (basis * strength[:, None]) @ basis.mT
        values, vectors = torch.linalg.eigh(stack.mT @ stack)
        expected = (vectors[..., -10:] * values[:, None, -10:]) @ vectors[..., -10:].mT
        torch.testing.assert_close(P, expected)


@pytest.mark.parametrize("columns", [5, 100])
def test_rows_count_as_often_as_their_weights_say(normal, columns):
    V, often = normal(2, 30, columns), torch.arange(30) % 4
    weighted, repeated = None, None
    for k in range(3):
        weighted = LowRank.observe(V, weighted, k, centre=True, weights=often.double())
        rows = V.repeat_interleave(often, dim=1)
        repeated = LowRank.observe(rows, repeated, k, centre=True)
    torch.testing.assert_close(weighted.mean, repeated.mean)
    torch.testing.assert_close(dense(weighted), dense(repeated))


# --- LowRank: the solution


@pytest.mark.parametrize("columns", [7, 100])  # all directions, the strongest 16
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_the_solution_is_that_of_the_dense_system(normal, columns, groups, bias):
    spreads = torch.linspace(2, 0.1, columns).double()
    V = normal(groups, 500, columns) * spreads + normal(groups, 1, columns)
    moments = LowRank.observe(V, None, 0, centre=bias)
    grad, bias_grad = normal(groups, 4, columns), normal(groups, 4) if bias else None
    solution = moments.solve(grad, bias_grad, 4.0)
    Q, m = dense(moments), moments.mean
    C = grad - bias_grad[:, :, None] * m[:, None] if bias else grad
    G = C @ torch.linalg.inv(ridge(Q, 4.0))
    torch.testing.assert_close(formed(solution), G)
    torch.testing.assert_close(solution.change, (G @ Q * G).sum(dim=2))
    if bias:
        torch.testing.assert_close(solution.bias, bias_grad - (G @ m[:, :, None])[:, :, 0])
    else:
        assert solution.bias is None


def test_the_map_of_units_divides_residuals_by_their_second_moment(normal):
    """L = (S + delta I)^-1, up to a factor, in units of the units' scales."""
    E, scale = normal(1, 300, 5) @ normal(1, 5, 30) + 0.1 * normal(1, 300, 30), normal(30).exp()
    residuals = LowRank.observe(E, None, 0, centre=False)
    damping = 0.1 / 30  # a tenth of the mean variance
    L = torch.linalg.inv(ridge(dense(residuals), damping))
    L = L / residuals.damped(damping).c[:, :, None] * scale / scale[:, None]
    for grad in (normal(1, 30, 40), normal(1, 30, 1)):
        torch.testing.assert_close(residuals.unit_map(0.1, scale).apply(grad), L @ grad)


def test_residuals_of_nobody_map_nothing(normal):
    residuals = LowRank.observe(torch.zeros(1, 20, 30).double(), None, 0, centre=False)
    E = normal(1, 30, 4)
    assert torch.equal(residuals.unit_map(0.1, torch.zeros(30).double()).apply(E), E)


def test_units_that_do_not_vary_are_left_alone(normal):
    """In float32 the directions of the others do not quite avoid them."""
    scale = torch.cat([torch.zeros(10), torch.ones(10)])
    rows = (normal(1, 100, 3) @ normal(1, 3, 20)).float() * scale
    E = normal(1, 20, 4).float()
    mapped = LowRank.observe(rows, None, 0, centre=False).unit_map(1.0, scale).apply(E)
    assert torch.equal(mapped[:, :10], E[:, :10])
    assert bool((mapped.abs() < 10).all())


def test_it_is_the_w_block(normal):
    """min over D and b of the mean of |E - D (v - m) - b|^2 + delta |D|^2, with gradients of E."""
    V, E = normal(300, 6) + 2, normal(300, 4)
    moments = LowRank.observe(V[None], None, 0, centre=True)
    solution = moments.solve((E.T @ V)[None] / 300, E.mean(dim=0)[None], 0.5)
    delta = 0.5 * float(V.var(dim=0, correction=0).sum())
    eye = torch.eye(6, dtype=torch.float64)
    rows = torch.cat([V - V.mean(dim=0), (300 * delta) ** 0.5 * eye])
    wanted = torch.cat([E, torch.zeros(6, 4).double()])
    D = torch.linalg.lstsq(rows, wanted).solution.T
    torch.testing.assert_close(formed(solution)[0], D)
    # The bias makes up for the mean: after the step, pre-activations change by E's mean on average.
    change = V @ D.T + solution.bias[0]
    torch.testing.assert_close(change.mean(dim=0), E.mean(dim=0))


def test_each_unit_has_a_size_of_its_own(normal):
    moments = LowRank.observe(normal(2, 50, 5), None, 0, centre=True)
    grad, bias_grad, size = normal(2, 3, 5), normal(2, 3), normal(2, 3)
    solution = moments.solve(grad, bias_grad, 1.0)
    W, offset = normal(2, 3, 5), normal(2, 3)
    expected = W + size[:, :, None] * formed(solution), offset + size * solution.bias
    solution.add_to(W, offset, size)
    torch.testing.assert_close((W, offset), expected)


@pytest.mark.parametrize("columns", [7, 100])
def test_the_inverse(normal, columns):
    moments = LowRank.observe(normal(2, 400, columns), None, 0, centre=True)
    R = torch.linalg.inv(ridge(dense(moments), 4.0))
    some = torch.tensor([5, 0, 3])
    torch.testing.assert_close(moments.inverse_rows(4.0, some), R[0, some])
    torch.testing.assert_close(moments.inverse_diagonal(4.0), R.diagonal(dim1=1, dim2=2))


@pytest.mark.parametrize("columns", [20, 100])
def test_the_moments_of_some_columns(normal, columns):
    V = normal(2, 200, 10) @ normal(2, 10, columns) + 3
    moments = LowRank.observe(V, None, 0, centre=True)
    some = torch.tensor([1, 4, 5, 17])
    selected = moments.select(some)
    assert torch.equal(selected.mean, moments.mean[:, some])
    expected = covariance(V, moments.mean)[:, some][:, :, some]
    torch.testing.assert_close(dense(selected), expected, atol=1e-7, rtol=1e-7)
    again = LowRank.observe(V[:, :, some], selected, 1, centre=True)  # and it goes on from there
    torch.testing.assert_close(dense(again), expected, atol=1e-7, rtol=1e-7)


def test_of_what_lies_beyond_the_directions_each_column_has_its_share(normal):
    moments = LowRank.observe(normal(1, 500, 200), None, 0, centre=True)
    selected = moments.select(torch.arange(100))
    kept = dense(moments)[0].diagonal()[:100].sum()
    torch.testing.assert_close(selected.total[0], kept, rtol=0.05, atol=0)


# --- LowRank: no harm


@pytest.mark.parametrize("columns", [3, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", ["constant", "zero", "one row"])
def test_inputs_without_variance_do_no_harm(columns, dtype, rows):
    V = {
        "constant": torch.full((1, 50, columns), 3.0),
        "zero": torch.zeros(1, 50, columns),
        "one row": torch.arange(float(columns)).view(1, 1, -1),
    }[rows].to(dtype)
    moments = None
    for k in range(3):
        moments = LowRank.observe(V, moments, k, centre=True)
        bias_grad = torch.ones(1, 2, dtype=dtype)
        grad = bias_grad[:, :, None] * V.mean(dim=1)[:, None]  # as inputs like these make it
        solution = moments.solve(grad, bias_grad, 4.0)
        G = formed(solution)
        for T in (G, solution.change, solution.bias, moments.inverse_diagonal(4.0)):
            assert bool(T.isfinite().all())
        assert bool((solution.change >= 0).all())


def test_what_is_no_number_does_not_raise():
    V = torch.ones(1, 20, 4)
    V[0, 3, 2] = torch.nan
    moments = LowRank.observe(V, None, 0, centre=True)
    moments = LowRank.observe(torch.randn(1, 20, 4), moments, 1, centre=True)
    grad = torch.ones(1, 2, 4)
    assert bool(formed(moments.solve(grad, torch.ones(1, 2), 4.0)).isnan().any())


def test_more_inputs_than_float32_can_count_do_no_harm():
    """A large common mean, as of many bits that are on: the covariance is a small difference."""
    V = 1000 + torch.randn(1, 500, 80, generator=torch.Generator().manual_seed(0))
    moments = LowRank.observe(V, None, 0, centre=True)
    assert float(moments.total) == pytest.approx(80, rel=0.05)


# --- Diagonal


def test_tokens_have_a_diagonal(normal):
    counts = [torch.tensor([[[5.0, 0, 3, 2]]]).double(), torch.tensor([[[0.0, 4, 4, 2]]]).double()]
    moments = Diagonal.observe(counts[0], None, 0, centre=False)
    torch.testing.assert_close(moments.frequency, counts[0][0] / 10)
    moments = Diagonal.observe(counts[1], moments, 1, centre=False)
    keep = memory(1)
    f = keep * counts[0][0, 0] / 10 + (1 - keep) * counts[1][0, 0] / 10
    torch.testing.assert_close(moments.frequency[0], f)
    grad, Q = normal(1, 3, 4), torch.diag(f)
    R = torch.linalg.inv(ridge(Q[None], 4.0))[0]
    solution = moments.solve(grad, None, 4.0)
    G = grad[0] @ R
    torch.testing.assert_close(formed(solution)[0], G)
    torch.testing.assert_close(solution.change[0], (G @ Q * G).sum(dim=1))


def test_no_tokens_do_no_harm():
    moments = Diagonal.observe(torch.zeros(1, 1, 4), None, 0, centre=False)
    assert moments.frequency.tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize("kind", [LowRank, Diagonal])
def test_the_tensors_make_the_moments(normal, kind):
    moments = kind.observe(normal(1, 1, 4).abs(), None, 0, centre=True)
    again = kind(**moments.tensors())
    for name, T in moments.tensors().items():
        assert torch.equal(T, getattr(again, name))


@pytest.mark.parametrize("offset", [0.0, 30.0, 1e4])
def test_the_change_of_inputs_far_from_0(normal, offset):
    """What float32 predicts is what it does, to the mean and around it."""
    V, E = normal(256, 100) + offset, normal(256, 50) / 256
    V, E = V.float().double(), E.float().double()
    changes = []
    for dtype in (torch.float64, torch.float32):
        rows, residuals = V[None].to(dtype), E[None].to(dtype)
        grad, bias_grad = residuals.mT @ rows, residuals.sum(dim=1)
        solution = LowRank.observe(rows, None, 0, centre=True).solve(grad, bias_grad, 0.01)
        W, offsets = torch.zeros_like(grad), torch.zeros_like(bias_grad)
        solution.add_to(W, offsets, torch.ones_like(bias_grad))
        moved = V @ W[0].double().T + offsets[0].double()
        changes.append((solution.change[0].double(), moved.var(dim=0), moved.mean(dim=0)))
    for exact, rounded in zip(*changes, strict=True):
        torch.testing.assert_close(rounded, exact, rtol=0.01, atol=0.01 * float(exact.abs().max()))
