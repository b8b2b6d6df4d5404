"""Run Algorithm 3 of the paper (label BCD) on the full batch, from the output to the input.

One ``sweep`` updates U_h, W_h and then V_i, U_i, W_i for i = h-1, ..., 1. It solves the U and V
blocks, and takes proximal gradient steps on the W block. The code counts layers from 0: operator i
maps V[i] to U[i], V[0] is the scaled input, and V[i + 1] belongs to U[i].
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from zeroone.exact.blocks import damped_gain, row_blocks, u_gap, u_step, v_step, v_step_cg
from zeroone.exact.weights import active_columns, lipschitz, pgm, stationarity
from zeroone.nn.functional import step, sum_of_squares
from zeroone.nn.heads import HardmaxMSE
from zeroone.nn.network import Network
from zeroone.utils.checks import count, not_negative, one_of, positive
from zeroone.utils.parallel import ALONE, Team

V_SOLVERS = ("factor", "cg")
STEP = 0.99  # of the W block, relative to the largest with which no block raises F


@dataclass(frozen=True)
class ExactSettings:
    """Settings of Algorithm 3. The defaults train the last layer; ``PAPER`` has the printed ones.

    Attributes:
        lam: the weight of ||W||_{2,0}; 0 prunes nothing.
        gamma: the weight of the ridge term.
        tau: the weight of U = W V.
        pi: the weight of V = step(U).
        beta: the step of the W block; None takes 0.99 / Lipschitz constant, with which F never
            rises.
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
        not_negative("tol", self.tol)
        one_of("v_solver", self.v_solver, V_SOLVERS)

    @property
    def rho(self) -> float:
        """tau/pi, of the U_i block (erratum E1)."""
        return self.tau / self.pi

    @property
    def damping(self) -> float:
        """pi/tau, of the V_i block."""
        return self.pi / self.tau

    def mu(self, n_samples: int) -> float:
        """Return tau N, of the U_h block."""
        return self.tau * n_samples


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


class ExactBCD:
    """The blocks of one training problem and the sweep over them."""

    settled = True  # every sweep prunes, so no network is larger than requested

    def __init__(
        self,
        network: Network,
        V0: Tensor,
        y: Tensor,
        settings: ExactSettings,
        team: Team = ALONE,
        rows: Tensor | None = None,
    ) -> None:
        """Start at the consistent point U_i = W_i V_{i-1}, V_i = step(U_i).

        Args:
            network: trained in place; it has no stream.
            V0: scaled inputs.
            y: class numbers.
            settings: the settings of the solver.
            team: the processes (ranks) that solve the problem together, each with its own samples.
            rows: the numbers of this rank's samples; None if it has all of them.

        """
        self.network, self.y, self.settings, self.team = network, y, settings, team
        self.model = network  # as all trainers call it
        self.rows = torch.arange(len(y)) if rows is None else rows
        self.operators = network.operators
        self.n_samples = round(team.total(len(y))[0])
        self.U: list[Tensor] = []
        self.V = [V0]
        for i, operator in enumerate(self.operators):
            self.U.append(operator.apply(self.V[i]))
            self.V.append(self._bits(i, self.U[i]))
        self.V.pop()  # the head has no step
        self._of_input = self._measure(0)  # the input never changes

    @property
    def optimizer(self) -> "ExactBCD":
        """The solver itself, for callbacks."""
        return self

    def terms(self) -> dict[str, float]:
        """Return F (label penalf1) and its five terms, from their definitions."""
        s, operators = self.settings, self.operators
        loss = coupling = activation = 0.0
        for rows in self._rows():
            loss += float(self.network.head.losses(self.U[-1][rows], self.y[rows]).sum())
            for i in range(len(operators)):
                coupling += sum_of_squares(self.U[i][rows] - self._apply(i, rows))
            for i in range(1, len(operators)):
                S = self._bits(i - 1, self.U[i - 1][rows])
                activation += sum_of_squares(self.V[i][rows] - S)
        loss, coupling, activation = self.team.total(loss, coupling, activation)
        columns = [active_columns(op.weight, op.group, op.n_free) for op in operators]
        terms = {
            "loss": loss / self.n_samples,
            "sparsity": s.lam * sum(int(active.sum()) for active in columns),
            "ridge": s.gamma / 2 * sum(sum_of_squares(op.weight) for op in operators),
            "coupling": s.tau / 2 * coupling,
            "activation": s.pi / 2 * activation,
        }
        return {"F": sum(terms.values()), **terms}

    def sweep(self) -> dict[str, Any]:
        """Update every block once, outer to inner (label Int2); return the history's entry.

        It has F and its terms, the seconds, the share of bits of each hidden layer that changed
        (``flipped``) and ||W_new - W_old|| / ||W_old|| of each layer (``moved``).
        """
        started, before = time.perf_counter(), [op.weight for op in self.operators]
        flipped = [0.0 for _ in self.operators]
        for _ in self.update_blocks(flipped):
            pass
        moved = [
            _relative_change(op.weight, old) for op, old in zip(self.operators, before, strict=True)
        ]
        terms = self.terms()
        seconds = time.perf_counter() - started
        return terms | {"seconds": seconds, "flipped": flipped[:-1], "moved": moved}

    def update_blocks(self, flipped: list[float]) -> Iterator[str]:
        """Update one block after the other; yield its name, numbered as in the paper.

        Weights that are not finite end the sweep. ``flipped`` takes the share of flipped bits of
        each layer.
        """
        last = len(self.U) - 1
        for i in reversed(range(last + 1)):
            if i < last:
                self._update_V(i + 1)
                yield f"V{i + 1}"
            cross, flipped[i] = self._update_U(i)
            yield f"U{i + 1}"
            self._update_W(i, cross)
            yield f"W{i + 1}"
            if not bool(self.operators[i].weight.isfinite().all()):
                return

    def _apply(self, i: int, rows: slice) -> Tensor:
        """Return W_i V_i, the pre-activations of layer i before pooling."""
        return self.operators[i].apply(self.V[i][rows])

    def _bits(self, i: int, U: Tensor) -> Tensor:
        """Return the activations of layer i for the pre-activations U."""
        return step(self.network.layers[i].pool.forward(U))

    def _rows(self) -> list[slice]:
        return list(row_blocks(len(self.y)))

    def _v_solver(self, i: int) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the V[i] block as a function of U[i] and step(U[i - 1])."""
        op, settings = self.operators[i], self.settings
        if settings.v_solver == "cg" or not op.is_matrix:
            return partial(v_step_cg, op=op, damping=settings.damping, tol=settings.cg_tol)
        return partial(v_step, op=op, gain=damped_gain(op.linear, settings.damping))

    def _update_V(self, i: int) -> None:
        """Update V[i], the input of operator i, which should match step(U[i - 1])."""
        solve = self._v_solver(i)
        for rows in self._rows():
            self.V[i][rows] = solve(self.U[i][rows], self._bits(i - 1, self.U[i - 1][rows]))

    def _solve_U(self, i: int, rows: slice, B: Tensor) -> Tensor:
        head, s = self.network.head, self.settings
        if i < len(self.U) - 1:
            pool = self.network.layers[i].pool
            return u_step(self.V[i + 1][rows], B, s.rho, pool, printed_epsilon=s.printed)
        mu = s.mu(self.n_samples)
        if s.printed and isinstance(head, HardmaxMSE):
            return head.lemma_1(B, self.y[rows], mu)
        return head.u_step(B, self.y[rows], mu)

    def _update_U(self, i: int) -> tuple[Tensor, float]:
        """Update U[i]; return R^T V of R = U - W V, for the W block, and the share of flips."""
        op = self.operators[i]
        cross = torch.zeros_like(op.weight)
        flips = 0
        for rows in self._rows():
            B = self._apply(i, rows)
            new = self._solve_U(i, rows, B)
            flips += int((self._bits(i, new) != self._bits(i, self.U[i][rows])).sum())
            self.U[i][rows] = new
            cross += op.cross(new.sub_(B), self.V[i][rows])
        self.team.sum_(cross)
        n_bits = self.n_samples * math.prod(self.network.layers[i].shape_out)
        return cross, self.team.total(flips)[0] / n_bits

    def _curvature(self, i: int) -> tuple[Tensor, float]:
        """Return V[i]^T V[i] and the step of the W block."""
        return self._measure(i) if i else self._of_input

    def _measure(self, i: int) -> tuple[Tensor, float]:
        op, V, s = self.operators[i], self.V[i], self.settings
        gram = torch.zeros_like(op.gram(V[:0]))
        for rows in self._rows():
            gram += op.gram(V[rows])
        self.team.sum_(gram)
        return gram, s.beta or STEP / lipschitz(gram, s.tau, s.gamma)

    def _update_W(self, i: int, cross: Tensor) -> None:
        op, s = self.operators[i], self.settings
        gram, beta = self._curvature(i)
        op.weight = pgm(
            op.weight,
            gram,
            cross,
            tau=s.tau,
            gamma=s.gamma,
            lam=s.lam,
            beta=beta,
            steps=s.pgm_steps,
            group=op.group,
            n_free=op.n_free,
        )

    def state(self) -> dict[str, Tensor]:
        """Return all blocks by name, with all ranks' samples: a sweep depends on nothing else."""
        blocks = {f"W{i}": op.weight for i, op in enumerate(self.operators)}
        for name, mine in {"U": self.U, "V": self.V[1:]}.items():
            for i, T in enumerate(mine):
                blocks[f"{name}{i}"] = self.team.joined(T, self.rows, self.n_samples)
        return blocks

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from the result of ``state()``; the number of ranks may differ."""
        device = self.network.device
        for i, op in enumerate(self.operators):
            op.weight = state[f"W{i}"].to(device)
        self.U = [state[f"U{i}"][self.rows].to(device) for i in range(len(self.U))]
        self.V[1:] = [state[f"V{i}"][self.rows].to(device) for i in range(len(self.V) - 1)]

    def residuals(self) -> dict[str, float]:
        """Return the largest violation of each block's stationarity condition (label G-In3).

        U_h and U: by how much a sample or entry misses the minimum of its sub-problem, on the scale
        where a wrong class or bit costs about 1. V: the largest entry of the gradient over pi,
        which bounds the distance to the minimiser. W: the distance from P-stationarity in the units
        of W, zero columns included.
        """
        layers = range(len(self.U))
        u_gaps = [self._worst(partial(self._u_gap, i)) for i in layers]
        v_gradients = [self._worst(partial(self._v_gradient, i)) for i in layers[1:]]
        return {
            "U_h": u_gaps[-1],
            "W": max(self._w_residual(i) for i in layers),
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
        return u_gap(U, self.V[i + 1][rows], B, self.settings.rho, self.network.layers[i].pool)

    def _v_gradient(self, i: int, rows: slice) -> Tensor:
        V, S = self.V[i][rows], self._bits(i - 1, self.U[i - 1][rows])
        pull = self.operators[i].adjoint(self._apply(i, rows) - self.U[i][rows])
        return (pull / self.settings.damping + (V - S)).abs()

    def _w_residual(self, i: int) -> float:
        op, s = self.operators[i], self.settings
        cross = torch.zeros_like(op.weight)
        for rows in self._rows():
            cross += op.cross(self.U[i][rows] - self._apply(i, rows), self.V[i][rows])
        self.team.sum_(cross)
        _, beta = self._curvature(i)
        gradient = s.gamma * op.weight - s.tau * cross
        return stationarity(op.weight, gradient, beta, s.lam, op.group, op.n_free)


def _relative_change(new: Tensor, old: Tensor) -> float:
    size = math.sqrt(sum_of_squares(old))
    return math.sqrt(sum_of_squares(new - old)) / size if size else 0.0
