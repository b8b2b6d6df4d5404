"""Run Algorithm 3 of the paper (label BCD) on the full batch, from the output to the input.

One ``sweep`` updates U_h, W_h and then V_i, U_i, W_i for i = h-1, ..., 1. It solves the U and V
blocks, and takes proximal gradient steps on the W block. The code counts layers from 0: operator i
maps V[i] to U[i], V[0] is the scaled input, and V[i + 1] belongs to U[i]. A shortcut S_i is one
more W block, updated right after W_i; it gives V[j] a second consumer.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from zeroone.exact.blocks import row_blocks, u_gap_pooled, u_step_pooled, v_step, v_step_cg
from zeroone.exact.linalg import damped_gain
from zeroone.exact.objective import Coefficients, Terms, columns_of, evaluate, ridge_of
from zeroone.exact.penalty import stationarity
from zeroone.exact.pgm import Phi, lipschitz, pgm
from zeroone.nn.functional import add_up, step, sum_of_squares
from zeroone.nn.layers import Link
from zeroone.nn.network import Network
from zeroone.utils.checks import InputError, count, not_negative, one_of, positive
from zeroone.utils.parallel import ALONE, Team

V_SOLVERS = ("factor", "cg")

Sums = tuple[Tensor, float]  # R^T V and ||R||^2 of the residual R = U - W V


@dataclass(frozen=True)
class ExactSettings(Coefficients):
    """Settings of Algorithm 3. The defaults train the last layer; ``PAPER`` has the printed ones.

    Attributes:
        lam: the weight of ||W||_{2,0}; 0 prunes nothing.
        gamma: the weight of the ridge term.
        tau: the weight of U = W V.
        pi: the weight of V = step(U).
        beta: the step of the W block; None takes ``step_fraction`` / Lipschitz constant, with
            which F never rises.
        step_fraction: see ``beta``; below 1.
        pgm_steps: steps of each W block, the paper's L.
        max_iter: sweeps, the paper's K.
        tol: stop when all four stationarity residuals are at most this; 0 never stops early.
        check_every: sweeps between two such checks.
        v_solver: 'factor' (Cholesky, for operators that are matrices) or 'cg' (the paper's).
        cg_tol: the relative residual of conjugate gradients.
        printed: take Lemma 1 and the epsilons of 1e-10 as printed, not the exact U blocks.

    """

    lam: float = 0.0
    gamma: float = 1e-5
    tau: float = 1e-3
    pi: float = 1e-5
    beta: float | None = None
    step_fraction: float = 0.99
    pgm_steps: int = 50
    max_iter: int = 50
    tol: float = 1e-6
    check_every: int = 10
    v_solver: str = "factor"
    cg_tol: float = 1e-6
    printed: bool = False

    def __post_init__(self) -> None:
        not_negative("lam", self.lam)
        for name in ("gamma", "tau", "pi", "cg_tol"):
            positive(name, getattr(self, name))
        for name in ("pgm_steps", "max_iter", "check_every"):
            count(name, getattr(self, name))
        if self.beta is not None:
            positive("beta", self.beta)
        if positive("step_fraction", self.step_fraction) >= 1:
            raise InputError(f"step_fraction must be below 1, got {self.step_fraction!r}.")
        not_negative("tol", self.tol)
        one_of("v_solver", self.v_solver, V_SOLVERS)


# The printed settings (section 'Datasets and implementations').
PAPER = ExactSettings(
    lam=0.052,
    gamma=1e-8,
    tau=1e-6,
    pi=1e-7,
    beta=0.00072,
    pgm_steps=1,
    max_iter=35,
    tol=0.0,
    v_solver="cg",
    printed=True,
)


@dataclass
class Sweep:
    """F by term after every block of a sweep, and how far each layer moved."""

    blocks: list[dict[str, Any]] = field(default_factory=list)
    flipped: list[float] = field(default_factory=list)  # share of hidden bits that changed
    moved: list[float] = field(default_factory=list)  # ||W_new - W_old|| / ||W_old||
    seconds: float = 0.0

    @property
    def F(self) -> float:
        """F after the last block."""
        return float(self.blocks[-1]["F"])

    @property
    def finite(self) -> bool:
        """Whether F is finite."""
        return math.isfinite(self.F)


class ExactBCD:
    """The blocks of one training problem and the sweep over them."""

    def __init__(
        self,
        network: Network,
        V0: Tensor,
        y: Tensor,
        settings: ExactSettings,
        team: Team = ALONE,
    ) -> None:
        """Start at the consistent point U_i = W_i V_{i-1}, V_i = step(U_i).

        Args:
            network: trained in place.
            V0: scaled inputs.
            y: class numbers.
            settings: the settings of the solver.
            team: the processes (ranks) that solve the problem together, each with its own samples.

        """
        self.network, self.y, self.settings, self.team = network, y, settings, team
        self.n_samples = round(team.total(len(y))[0])
        self.U: list[Tensor] = []
        self.V = [V0]
        for i, layer in enumerate(network.layers):
            self.U.append(layer.apply(self.V))
            self.V.append(self._bits(i, self.U[-1]))
        self.V.pop()  # the head has no step
        self.terms = evaluate(network, self.U, self.V, y, team)
        # The input never changes: its curvature, by the layer that takes it, is measured once.
        self._of_input = {x.layer: self._measure(x) for x in network.links if x.source == 0}

    def sweep(self) -> Sweep:
        """Update every block once, outer to inner (label Int2); stop if F is not finite."""
        started, before = time.perf_counter(), self._weights()
        done = Sweep()
        for name in self._update_blocks(done):
            terms = self.terms.weighted(self.settings)
            done.blocks.append({"block": name, "F": sum(terms.values()), **terms})
            if not done.finite:
                break
        done.moved = [
            _relative_change(new, old) for new, old in zip(self._weights(), before, strict=True)
        ]
        done.seconds = time.perf_counter() - started
        return done

    def _update_blocks(self, done: Sweep) -> Iterator[str]:
        """Update one block after the other; yield its name, numbered as in the paper."""
        last = len(self.U) - 1
        for i in reversed(range(last + 1)):
            if i < last:
                self._update_V(i + 1)
                yield f"V{i + 1}"
            sums, flipped = self._update_U(i)
            if i < last:
                done.flipped.insert(0, flipped)
            yield f"U{i + 1}"
            own, *shortcut = self.network.into(i)
            self._update_W(own, sums)
            yield f"W{i + 1}"
            for link in shortcut:
                self._update_W(link, self._sums(link))
                yield f"S{i + 1}"

    def _weights(self) -> list[list[Tensor]]:
        """Return the weights of each layer, with those of its shortcut."""
        return [[op.weight for op in layer.operators] for layer in self.network.layers]

    def _apply(self, i: int, rows: slice) -> Tensor:
        """Return W_i V_i + S_i V_j, the pre-activations of layer i before pooling."""
        return self.network.layers[i].apply([V[rows] for V in self.V[: i + 1]])

    def _bits(self, i: int, U: Tensor) -> Tensor:
        """Return the activations of layer i for the pre-activations U."""
        return step(self.network.layers[i].pool.forward(U))

    def _rows(self) -> list[slice]:
        return list(row_blocks(len(self.y)))

    def _v_solver(self, i: int) -> Callable[[list[Tensor], Tensor], Tensor]:
        """Return the V[i] block as a function of its consumers' targets and step(U[i - 1])."""
        operators = [link.operator for link in self.network.consumers(i)]
        op, settings = operators[0], self.settings
        damping = settings.damping
        if settings.v_solver == "cg" or len(operators) > 1 or not op.is_matrix:
            return lambda T, S: v_step_cg(T, S, operators, damping, tol=settings.cg_tol)
        gain = damped_gain(op.linear, damping)
        return lambda T, S: v_step(T[0], S, op, gain)

    def _target(self, link: Link, rows: slice) -> Tensor:
        """Return the target of a link's operator: U minus what other links add to the layer."""
        others = [x for x in self.network.into(link.layer) if x.source != link.source]
        U = self.U[link.layer][rows]
        return U - others[0].operator.apply(self.V[others[0].source][rows]) if others else U

    def _update_V(self, i: int) -> None:
        """Update V[i], the input of operator i, which should match step(U[i - 1])."""
        consumers, solve = self.network.consumers(i), self._v_solver(i)
        coupling, activation = [0.0] * len(consumers), 0.0
        for rows in self._rows():
            targets = [self._target(link, rows) for link in consumers]
            S = self._bits(i - 1, self.U[i - 1][rows])
            V = solve(targets, S)
            for c, (link, T) in enumerate(zip(consumers, targets, strict=True)):
                coupling[c] += sum_of_squares(T - link.operator.apply(V)) / 2
            activation += sum_of_squares(V - S) / 2
            self.V[i][rows] = V
        *coupling, activation = self.team.total(*coupling, activation)
        for link, value in zip(consumers, coupling, strict=True):
            self.terms.coupling[link.layer] = value
        self.terms.activation[i - 1] = activation

    def _solve_U(self, i: int, rows: slice, B: Tensor) -> Tensor:
        printed = self.settings.printed
        if i == len(self.U) - 1:
            mu = self.settings.mu(self.n_samples)
            return self.network.head.u_step(B, self.y[rows], mu, printed=printed)
        pool = self.network.layers[i].pool
        return u_step_pooled(
            self.V[i + 1][rows], B, self.settings.rho, pool, printed_epsilon=printed
        )

    def _update_U(self, i: int) -> tuple[Sums, float]:
        """Update U[i]; return the sums that its W block needs and the share of flipped bits."""
        op = self.network.operators[i]
        cross = torch.zeros_like(op.weight)
        rss = value = 0.0
        flips = 0
        for rows in self._rows():
            V, old = self.V[i][rows], self.U[i][rows]
            B = self._apply(i, rows)
            new = self._solve_U(i, rows, B)
            flips += int((self._bits(i, new) != self._bits(i, old)).sum())
            self.U[i][rows] = new
            value += self._term_of_U(i, rows)
            R = new.sub_(B)
            cross += op.cross(R, V)
            rss += sum_of_squares(R)
        self.team.sum_(cross)
        rss, value, flipped = self.team.total(rss, value, flips)
        self.terms.coupling[i] = rss / 2
        if i == len(self.U) - 1:
            self.terms.loss = value / self.n_samples
        else:
            self.terms.activation[i] = value
        n_bits = self.n_samples * math.prod(self.network.layers[i].shape_out)
        return (cross, rss), flipped / n_bits

    def _term_of_U(self, i: int, rows: slice) -> float:
        """Return U[i]'s term besides the coupling: the loss, or ||V - step(U)||^2 / 2."""
        U = self.U[i][rows]
        if i == len(self.U) - 1:
            return float(self.network.head.losses(U, self.y[rows]).sum())
        return sum_of_squares(self.V[i + 1][rows] - self._bits(i, U)) / 2

    def _curvature(self, link: Link) -> tuple[Tensor, float]:
        """Return V^T V of a link's source and the step of its W block."""
        return self._of_input[link.layer] if link.source == 0 else self._measure(link)

    def _measure(self, link: Link) -> tuple[Tensor, float]:
        op, V, s = link.operator, self.V[link.source], self.settings
        gram = torch.zeros_like(op.gram(V[:0]))
        for rows in self._rows():
            gram += op.gram(V[rows])
        self.team.sum_(gram)
        return gram, s.beta or s.step_fraction / lipschitz(gram, s.tau, s.gamma)

    def _sums(self, link: Link) -> Sums:
        """Return the sums over the samples that the W block of a link needs."""
        cross, rss = torch.zeros_like(link.operator.weight), 0.0
        for rows in self._rows():
            R = self.U[link.layer][rows] - self._apply(link.layer, rows)
            cross += link.operator.cross(R, self.V[link.source][rows])
            rss += sum_of_squares(R)
        self.team.sum_(cross)
        return cross, self.team.total(rss)[0]

    def _update_W(self, link: Link, sums: Sums) -> None:
        op, s = link.operator, self.settings
        gram, beta = self._curvature(link)
        phi = Phi(op.weight, gram, *sums, s.tau, s.gamma)
        op.weight = pgm(
            phi, lam=s.lam, beta=beta, steps=s.pgm_steps, group=op.group, n_free=op.n_free
        )
        i, layer = link.layer, self.network.layers[link.layer]
        self.terms.coupling[i] = phi.misfit(op.weight) / 2
        self.terms.columns[i], self.terms.ridge[i] = columns_of(layer), ridge_of(layer)

    def state(self) -> dict[str, Tensor]:
        """Return all blocks by name: the next sweep depends on nothing else.

        The terms are added up block by block: from the blocks alone they come out a little
        different.
        """
        named = {"W": [op.weight for op in self.network.operators], "U": self.U, "V": self.V[1:]}
        state = {f"{name}{i}": T for name, blocks in named.items() for i, T in enumerate(blocks)}
        state |= {f"S{link.layer}": link.operator.weight for link in self.network.shortcuts}
        return state | {"terms": torch.tensor(self.terms.numbers(), dtype=torch.float64)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from the result of ``state()``."""
        for name, own in self.state().items():
            T = state.get(name)
            if T is None or (T.shape, T.dtype) != (own.shape, own.dtype) or not T.isfinite().all():
                raise InputError(f"the state does not fit: {name} is missing or of another form.")
        self.terms = Terms.from_numbers(state["terms"].tolist())
        state = {name: T.to(self.network.device) for name, T in state.items() if name != "terms"}
        for i, op in enumerate(self.network.operators):
            op.weight = state[f"W{i}"]
        for link in self.network.shortcuts:
            link.operator.weight = state[f"S{link.layer}"]
        self.U = [state[f"U{i}"] for i in range(len(self.U))]
        self.V[1:] = [state[f"V{i}"] for i in range(len(self.V) - 1)]

    def residuals(self) -> dict[str, float]:
        """Return the largest violation of each block's stationarity condition (label G-In3).

        U_h and U: by how much a sample or entry misses the minimum of its sub-problem, on the scale
        where a wrong class or bit costs about 1. V: the largest entry of the gradient over pi,
        which bounds the distance to the minimiser. W: the distance from P-stationarity in the units
        of W, zero columns included.
        """
        hidden = range(len(self.U) - 1)
        u_gaps = [self._worst(partial(self._u_gap, i)) for i in range(len(self.U))]
        v_gradients = [self._worst(partial(self._v_gradient, i + 1)) for i in hidden]
        return {
            "U_h": u_gaps[-1],
            "W": max(self._w_residual(link) for link in self.network.links),
            "V": max(v_gradients, default=0.0),
            "U": max(u_gaps[:-1], default=0.0),
        }

    def _worst(self, violations: Callable[[slice], Tensor]) -> float:
        """Return the largest violation over the samples of all ranks."""
        found = (float(violations(rows).max()) for rows in self._rows())
        return self.team.largest(max(found, default=0.0))[0]

    def _u_gap(self, i: int, rows: slice) -> Tensor:
        U, B = self.U[i][rows], self._apply(i, rows)
        if i == len(self.U) - 1:
            return self.network.head.gap(U, B, self.y[rows], self.settings.mu(self.n_samples))
        pool = self.network.layers[i].pool
        return u_gap_pooled(U, self.V[i + 1][rows], B, self.settings.rho, pool)

    def _v_gradient(self, i: int, rows: slice) -> Tensor:
        V, S = self.V[i][rows], self._bits(i - 1, self.U[i - 1][rows])
        pulls = [
            link.operator.adjoint(self._apply(link.layer, rows) - self.U[link.layer][rows])
            for link in self.network.consumers(i)
        ]
        return (add_up(pulls) / self.settings.damping + (V - S)).abs()

    def _w_residual(self, link: Link) -> float:
        op, s = link.operator, self.settings
        cross, _ = self._sums(link)
        gradient = s.gamma * op.weight - s.tau * cross
        _, beta = self._curvature(link)
        return stationarity(op.weight, gradient, beta, s.lam, op.group, op.n_free)


def _relative_change(new: list[Tensor], old: list[Tensor]) -> float:
    size = math.sqrt(sum(sum_of_squares(W) for W in old))
    moved = math.sqrt(sum(sum_of_squares(W - W0) for W, W0 in zip(new, old, strict=True)))
    return moved / size if size else 0.0
