"""Brute-force answers in float64. Imports nothing from zeroone: only definitions live here."""

from itertools import chain, combinations
from statistics import NormalDist

import numpy as np


def subsets(items):
    items = list(items)
    return chain.from_iterable(combinations(items, k) for k in range(len(items) + 1))


def hardmax(u):
    return (u == u.max()).astype(float)


def hardmax_loss(u, y, margin=0.0):
    """1/2 ||e_y - hardmax(u)||^2 after the competitors were raised by the margin."""
    e = np.eye(len(u))[y]
    return 0.5 * np.sum((e - hardmax(u + margin * (1 - e))) ** 2)


def u_out_value(u, b, y, mu, margin=0.0):
    return hardmax_loss(u, y, margin) + mu / 2 * np.sum((u - b) ** 2)


def u_out_infimum(b, y, mu, margin=0.0):
    """The infimum over u, by visiting every set of leaders.

    For a set T of leaders the loss is fixed; the closest point whose leaders include T has
    u_T = t and the others clipped at t, and its best t is the mean of b over T and the clipped.
    """
    raised = b + margin * (1 - np.eye(len(b))[y])
    best = np.inf
    for leaders in subsets(range(len(b))):
        if not leaders:
            continue
        others = [j for j in range(len(b)) if j not in leaders]
        u = np.zeros(len(b))
        u[list(leaders)] = 1.0
        loss = 0.5 * np.sum((np.eye(len(b))[y] - u) ** 2)
        for clipped in subsets(others):
            t = np.mean(raised[list(leaders) + list(clipped)])
            distance = np.sum((raised[list(leaders)] - t) ** 2)
            distance += np.sum(np.maximum(raised[others] - t, 0) ** 2)
            best = min(best, loss + mu / 2 * distance)
    return best


def u_in_value(u, a, b, rho):
    return (a - (u > 0)) ** 2 + rho * (u - b) ** 2


def u_in_infimum(a, b, rho):
    """The lower of the two half-lines: u <= 0 (where step is 0) and u > 0 (where it is 1)."""
    off = a**2 + rho * max(b, 0.0) ** 2
    on = (a - 1) ** 2 + rho * min(b, 0.0) ** 2
    return min(off, on)


def v_minimiser(U, S, W, offset, tau, pi):
    """min_V tau/2 ||U - V W^T - offset||^2 + pi/2 ||V - S||^2, as stacked least squares."""
    stacked = np.vstack([np.sqrt(tau) * W, np.sqrt(pi) * np.eye(W.shape[1])])
    targets = np.hstack([np.sqrt(tau) * (U - offset), np.sqrt(pi) * S])
    return np.linalg.lstsq(stacked, targets.T, rcond=None)[0].T


def w_value(W, U, V, tau, gamma, lam):
    columns = np.count_nonzero(np.any(W != 0, axis=0))
    misfit = np.sum((U - V @ W.T) ** 2)
    return tau / 2 * misfit + gamma / 2 * np.sum(W**2) + lam * columns


def w_gradient(W, U, V, tau, gamma):
    return tau * (W @ V.T - U.T) @ V + gamma * W


def w_on_support(support, U, V, tau, gamma):
    """The best W whose non-zero columns lie in the support: a ridge regression."""
    W = np.zeros((U.shape[1], V.shape[1]))
    if support:
        columns = list(support)
        A = tau * V[:, columns].T @ V[:, columns] + gamma * np.eye(len(columns))
        W[:, columns] = np.linalg.solve(A, tau * V[:, columns].T @ U).T
    return W


def w_all_supports(U, V, tau, gamma):
    return [w_on_support(s, U, V, tau, gamma) for s in subsets(range(V.shape[1]))]


def is_p_stationary(W, gradient, beta, lam, tol=1e-8):
    """Label P-equivalent, column by column."""
    for w, g in zip(W.T, gradient.T, strict=True):
        if np.any(w != 0):
            if np.linalg.norm(g) > tol or np.linalg.norm(w) < np.sqrt(2 * beta * lam) - tol:
                return False
        elif np.linalg.norm(g) > np.sqrt(2 * lam / beta) + tol:
            return False
    return True


def objective(Ws, offsets, U, V, y, weights, margin):
    """F from its definition (label penalf1); weights = (lam, gamma, tau, pi)."""
    lam, gamma, tau, pi = weights
    total = np.mean([hardmax_loss(u, k, margin) for u, k in zip(U[-1], y, strict=True)])
    for W, b, u, v in zip(Ws, offsets, U, V, strict=True):
        total += lam * np.count_nonzero(np.any(W != 0, axis=0))
        total += gamma / 2 * (np.sum(W**2) + np.sum(b**2))
        total += tau / 2 * np.sum((u - v @ W.T - b) ** 2)
    for u, v in zip(U[:-1], V[1:], strict=True):
        total += pi / 2 * np.sum((v - (u > 0)) ** 2)
    return total


def w_block(E, V, damping, bias):
    """argmin ||E - (V - m) G^T||^2/n + delta ||G||^2, m = 0 without a bias; and tr(G Q G^T)."""
    m = V.mean(axis=0) if bias else np.zeros(V.shape[1])
    C = V - m
    Q = C.T @ C / len(V)
    ridge = Q + damping * np.trace(Q) * np.eye(len(Q))
    G = np.linalg.solve(ridge, C.T @ E / len(V)).T
    change = np.sum(G @ Q * G, axis=1)
    return (np.hstack([G, (E.mean(axis=0) - G @ m)[:, None]]) if bias else G), change


def mapped(E, scale, damping=1.0):
    """E (S + delta I)^-1 up to a factor, S the second moment of E in units of each unit's scale."""
    S = (E * scale).T @ (E * scale) / len(E)
    ridge = S + damping * np.trace(S) / len(S) * np.eye(len(S))
    return np.linalg.solve(ridge, (E * scale).T).T / scale


def starts(n, apart=0.5):
    """Quantiles of a Gaussian at the multiples of the golden ratio, modulo 1."""
    golden = (5**0.5 - 1) / 2
    return np.array([apart * NormalDist().inv_cdf(k * golden % 1) for k in range(1, n + 1)])


def bcd_batch(Ws, streams, X, y, move, head_step, damping, smoothing=0.1):
    """The first batch of stochastic BCD on dense layers with biases in the last column.

    ``streams``: the layers that add the pre-activations of the layer below. Gives the new weights.
    """
    Ws = [W.copy() for W in Ws]
    V, U, B, own, start = [X], [], [], [], []
    for i, W in enumerate(Ws):
        own.append(V[i] @ W[:, :-1].T + W[:, -1])
        U.append(own[i] + (U[i - 1] if i in streams else 0))
        start.append(np.zeros(len(W)))
        if i + 1 < len(Ws):  # the first batch places the thresholds
            start[i] = U[i].mean(axis=0) + U[i].std(axis=0) * starts(len(W))
            W[:, -1] -= start[i] - (start[i - 1] if i in streams else 0)
            V.append((U[i] > start[i]).astype(float))
        B.append(U[i] - start[i])
    P = np.exp(B[-1] - B[-1].max(axis=1, keepdims=True))
    classes = Ws[-1].shape[0]
    E = (1 - smoothing) * np.eye(classes)[y] + smoothing / classes - P / P.sum(axis=1)[:, None]
    new = list(Ws)
    for i in reversed(range(len(Ws))):
        hidden = i + 1 < len(Ws)
        if hidden:
            spread, above = B[i].std(axis=0), E
            E = (above @ Ws[i + 1][:, :-1]) * (np.abs(B[i]) <= spread) / spread
            if i + 1 in streams:
                E = E + above
        asked = mapped(E, own[i].std(axis=0)) if hidden else E
        G, change = w_block(asked, V[i], damping, True)
        size = np.full(len(Ws[i]), head_step)
        if hidden:
            variance = own[i].var(axis=0)
            size = move * variance / np.sqrt(np.mean(variance * change))
        new[i] = Ws[i] + size[:, None] * G
    return new
