"""Stochastic BCD: the paper's blocks on mini-batches, changed so that hidden layers learn.

For one batch, from the consistent point B_i = W_i V_{i-1}, V_i = step(B_i): the residual of U_h
from the head, then from the last operator to the first the wanted change of the bits below (V),
the weights (W) and the residual below (U). The forward pass is 0/1 throughout and no derivative of
the step is taken. A shortcut is one more W block; what several consumers want of the same bits adds
up. docs/stochastic.md derives each block and says what is not guaranteed.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from zeroone.checks import InputError
from zeroone.layers import Link
from zeroone.network import Network
from zeroone.operators import Operator
from zeroone.ops import add_up, step
from zeroone.parallel import ALONE, Share, Team
from zeroone.pooling import Pooled
from zeroone.solvers.metric import Metric, refreshes
from zeroone.solvers.projection import project
from zeroone.solvers.pruning import BEGIN, END, EVENTS, kept_share, removal_costs
from zeroone.solvers.signals import u_drawn, u_expected, u_half, v_one_step, v_solved
from zeroone.solvers.start import balance, spread_thresholds
from zeroone.solvers.stochastic_settings import StochasticSettings
from zeroone.solvers.units import moments, power_sums

HALVED = 2000  # batches
SPREAD_MEMORY = 0.9  # of the spread of a unit's pre-activations, where 1 is the aim


@dataclass
class Block:
    """A W block of a batch: its sums travel, then its solution does, while other work is done."""

    link: Link
    metric: Metric
    sums: Callable[[], list[Tensor]]
    solution: Callable[[], Tensor] = field(init=False)
    totals: list[Tensor] = field(init=False)

    def solve(self, n: int, team: Team) -> None:
        """From the sums over n samples, which are waited for."""
        C, *self.totals = self.sums()
        self.solution = self.metric.solution(self.link.operator, C, n, team)


class StochasticBCD:
    """The weights, their metrics, and the update by one batch. Changes the network in place."""

    def __init__(
        self,
        network: Network,
        settings: StochasticSettings,
        n_batches: int | None,
        *,
        widths: list[int] | None = None,
        team: Team = ALONE,
    ) -> None:
        """``n_batches``: the length of the whole training, over which the flip rate falls.

        None is for batches without end: the rate is halved by the first ``HALVED`` of them, and no
        unit is removed. ``widths``: of a network that was trained before, how many hidden units it
        began with, of which ``keep`` is a share; None is for one at its random start. ``team``:
        the processes whose batches are parts of one.
        """
        self.team = team
        if n_batches is None and (settings.lam or settings.keep):
            raise InputError("lam and keep need to know when the training ends.")
        if settings.threshold_spread and not network.operators[0].bias:
            raise InputError("threshold_spread is for units with a bias, which is their threshold.")
        self.network, self.settings, self.n_batches = network, settings, n_batches
        self.fresh = widths is None
        # Of each link: the operators first, then the shortcuts.
        self.metrics = [
            Metric(settings.damping, bias=network.operators[link.layer].bias)
            for link in network.links
        ]
        self.widths = widths or [op.n_out for op in network.operators[:-1]]
        # The hidden units that are left, by their number at the start.
        self.units = [torch.arange(op.n_out) for op in network.operators[:-1]]
        for link, metric in self._blocks:
            if link.source == 0 and widths is not None:
                metric.dead = _empty_columns(link.operator)
        # What the W blocks of projected layers change, by place; the network has its projection.
        self.latents: dict[str, Operator] = {}
        # The mean cost of removing an input of each layer, when units began to leave.
        self.typical_costs = torch.full((len(network.layers),), torch.nan)
        self.k = 0  # batches done

    def update(
        self,
        V0: Tensor,
        y: Tensor,
        rng: torch.Generator,
        weights: Tensor | None = None,
        share: Share | None = None,
    ) -> Tensor:
        """One batch of scaled inputs: every block once, outer to inner. Gives the scores.

        ``weights``: how often each sample counts, 1 on average over all of them. ``share``: which
        samples of the team's batch these are; None is for all.
        """
        share = share or Share(len(V0))
        if self.k == 0 and self.fresh:
            balance(self.network, V0, weights, self.team)
            if apart := self.settings.threshold_spread:
                spread_thresholds(self.network, V0, apart, rng, weights, self.team)
        if self.settings.weights != "real" and not self.latents:
            self._begin_projection()
        V: list[Tensor] = []
        pooled: list[Pooled] = []
        for layer in self.network.layers:
            V.append(step(pooled[-1].values) if pooled else V0)
            pooled.append(layer.pool.apply(layer.apply(V)))
        self._refresh_metrics(V, weights, share)
        hidden = [p.values for p in pooled[:-1]]
        sums_of_units = self._begin_spreads(hidden, weights)
        scores = pooled[-1].values
        E = self.network.head.residual(scores, y, self.settings.smoothing)
        if weights is not None:
            E = E * weights[:, None]  # every residual below is linear in it
        wanted: list[list[Tensor]] = [[] for _ in V]  # of each V, by its consumers so far
        blocks: list[list[Block]] = []
        for i in reversed(range(len(V))):
            spread = pooled[i].spread(E)
            self._want(i, spread, wanted)  # by the forward pass's weights
            blocks.append(self._begin_W(i, spread, V, share.total))
            D = wanted.pop()
            if i:
                E = self._residual(add_up(D), pooled[i - 1].values, rng, weights, share)
        for block in (block for of_layer in blocks for block in of_layer):
            block.solve(share.total, self.team)
        for i, found in zip(reversed(range(len(V))), blocks, strict=True):
            self._finish_W(i, found, self._step_size(i, pooled[i].values) / share.total)
        heavy = self._heaviness(weights, share.total)
        for i, spread in enumerate(self._spreads(hidden, sums_of_units(), heavy)):
            self._normalise(i, spread)
        self.k += 1
        self._prune()
        return scores

    @property
    def flip_rate(self) -> float:
        """The mean wish to flip, of the bits that may, in the next batch."""
        return self.settings.flip_rate * self._left

    @property
    def window(self) -> float:
        """The |b| up to which a bit may flip in the next batch."""
        s = self.settings
        return s.window_end + (s.window - s.window_end) * self._left

    @property
    def top_step(self) -> float:
        """How much of the last W block's solution the next batch takes."""
        s = self.settings
        end = s.top_step if s.top_step_end is None else s.top_step_end
        return end + (s.top_step - end) * self._left

    @property
    def settled(self) -> bool:
        """Whether no more units will be removed."""
        done = 1 - self._left
        return not (self.settings.lam or self.settings.keep) or done >= END + 1 / EVENTS

    @property
    def _left(self) -> float:
        """The share of the training that is left."""
        if self.n_batches is None:
            return HALVED / (HALVED + self.k)
        return 1 - self.k / max(1, self.n_batches)

    @property
    def _blocks(self) -> list[tuple[Link, Metric]]:
        """The W blocks: every link with its metric."""
        return list(zip(self.network.links, self.metrics, strict=True))

    def _refresh_metrics(self, V: list[Tensor], weights: Tensor | None, share: Share) -> None:
        for link, metric in self._blocks:
            metric.observe(self.k, link.operator, V[link.source], weights, share, self.team)
            if refreshes(self.k):
                metric.refresh()

    def _want(self, i: int, E: Tensor, wanted: list[list[Tensor]]) -> None:
        """The V blocks below layer i: by how much the bits that it takes should change."""
        for link in self.network.into(i):
            if link.source == 0:
                continue  # inputs are given
            if self.settings.v_step == "solve":
                D = v_solved(E, link.operator, self.settings.v_damping)
            else:
                D = v_one_step(E, link.operator)
            wanted[link.source].append(D)

    def _residual(
        self, D: Tensor, B: Tensor, rng: torch.Generator, weights: Tensor | None, share: Share
    ) -> Tensor:
        """The U block of a hidden layer."""
        s = self.settings
        if s.u_step == "half":
            return u_half(D, B, self.window, weights)
        rate, margin, window = self.flip_rate, s.flip_margin, self.window
        if s.u_step == "drawn":
            return u_drawn(D, B, rate, margin, window, rng, weights, share, self.team)
        return u_expected(D, B, rate, margin, window, weights, self.team)

    def _step_size(self, i: int, B: Tensor) -> float:
        """How much of the solution of layer i's W blocks is taken; B: its pooled values."""
        layer, top = self.network.layers[i], i == len(self.network.layers) - 1
        if B.ndim > 2:  # filters, whose positions share the weights
            positions = math.prod(B.shape[2:])
            return self.settings.conv_step / (positions * layer.pool.receivers)
        return self.top_step if top else self.settings.step

    def _begin_W(self, i: int, E: Tensor, V: list[Tensor], n: int) -> "list[Block]":
        """The W blocks of layer i, their sums on their way: one for each of its links."""
        blocks = []
        for link, metric in self._blocks:
            if link.layer == i:
                sums = metric.sums(link.operator, E, V[link.source], n)
                blocks.append(Block(link, metric, self.team.sum_later(_place(link), *sums)))
        return blocks

    def _finish_W(self, i: int, blocks: "list[Block]", size: float) -> None:
        """The W blocks of layer i in their own metrics."""
        bias_of = self._latent(self.network.into(i)[0])
        for block in blocks:
            op = self._latent(block.link)
            block.metric.add(op, block.solution(), block.totals, size, bias_of)

    def _normalise(self, i: int, spread: Tensor) -> None:
        """Divide the rows of hidden layer i, then project them if they are to be."""
        for link in self.network.into(i):
            self._latent(link).weight.div_(spread[:, None])
        self._project(i)

    def _latent(self, link: Link) -> Operator:
        """Whose weights a W block changes: the network's own, unless they are projected."""
        return self.latents.get(_place(link), link.operator)

    def _begin_projection(self) -> None:
        """Keep a copy of the hidden layers' weights, and project those of the network."""
        for link in self.network.links:
            if link.layer < len(self.network.layers) - 1:
                op = link.operator
                self.latents[_place(link)] = op.resized(op.weight.clone(), op.n_in)

    def _project(self, i: int) -> None:
        """Set layer i to the projection of what its W blocks found.

        Its bias makes up for what that changes in the mean of the pre-activations.
        """
        if not self.latents or i == len(self.network.layers) - 1:
            return
        shift = self.network.layers[i].operator.weight.new_zeros(())
        for link, metric in self._blocks:
            if link.layer == i:
                L, W = self._latent(link).linear, link.operator.linear
                W.copy_(project(L, self.settings.weights))
                shift = shift + (L - W) @ metric.mean
        into = self.network.into(i)[0]
        offset, found = into.operator.offset, self._latent(into).offset
        if offset is not None and found is not None:
            offset.copy_(found + shift)

    def _begin_spreads(
        self, hidden: list[Tensor], weights: Tensor | None
    ) -> Callable[[], list[Tensor]]:
        """Of each unit the power sums, on their way; a filter's are those over all positions."""
        sums = [T for B in hidden for T in power_sums(B, weights)]
        return self.team.sum_later("", *sums)

    def _spreads(self, hidden: list[Tensor], sums: list[Tensor], heavy: float) -> Iterator[Tensor]:
        """What to divide each row by so that its pre-activations come to have unit spread.

        The step ignores a row's positive scale, so no bit changes. A unit whose pre-activation
        does not vary is left alone.
        """
        for B, total, squares in zip(hidden, sums[::2], sums[1::2], strict=True):
            _, variance = moments(total, squares, heavy * math.prod(B.shape[2:]))
            spread = variance if self.k == 0 else SPREAD_MEMORY + (1 - SPREAD_MEMORY) * variance
            yield torch.where(variance > 1e-12, spread, 1.0).sqrt_()

    def _heaviness(self, weights: Tensor | None, n: int) -> float:
        """What the samples of the team's batch weigh together."""
        return n if weights is None else self.team.total(float(weights.sum()))[0]

    def _prune(self) -> None:
        """Remove units (and with ``lam`` inputs) that are not worth their price, now and then."""
        s, done = self.settings, 1 - self._left
        if self.n_batches is None:
            return
        due = self.k % max(1, self.n_batches // EVENTS) == 0 or self.k == self.n_batches
        if not (s.lam or s.keep) or not due or done < BEGIN:
            return
        for i in reversed(range(len(self.network.layers))):
            costs = self._removal_costs(i)
            gone = self._unpaid(i, costs) if s.lam else self._surplus(i, costs)
            if len(gone):
                self._remove(i, gone)

    def _consumers(self, i: int) -> list[tuple[Link, Metric]]:
        """The W blocks that take the activations V[i]."""
        return [(link, metric) for link, metric in self._blocks if link.source == i]

    def _removal_costs(self, i: int) -> Tensor:
        """Of each unit (or input) that V[i] holds, in all its consumers together; on the CPU."""
        return add_up(
            [
                removal_costs(link.operator.linear, metric.inverse(), link.operator.group)
                for link, metric in self._consumers(i)
            ]
        ).cpu()

    def _unpaid(self, i: int, costs: Tensor) -> Tensor:
        """With ``lam``: the inputs of layer i that cost less to remove than their price.

        The price is fixed when units begin to leave: relative to the mean of those that are left
        it would rise with every unit that goes. The most valuable one always stays. Of inputs all
        stay where weights have two values, none of which is 0.
        """
        if self._left < 1 - END or (i == 0 and self.settings.weights == "binary"):
            return torch.empty(0, dtype=torch.long)
        if bool(self.typical_costs[i].isnan()):
            self.typical_costs[i] = costs.mean()
        gone = (costs > 0) & (costs <= 2 * self.settings.lam * self.typical_costs[i])
        gone[costs.argmax()] = False
        return gone.nonzero().flatten()

    def _surplus(self, i: int, costs: Tensor) -> Tensor:
        """With ``keep``: the cheapest units below layer i, as many as are too many by now."""
        if i == 0:
            return torch.empty(0, dtype=torch.long)  # inputs are no units
        wanted = kept_share(self.settings.keep or 1.0, 1 - self._left) * self.widths[i - 1]
        return costs.argsort(stable=True)[: max(0, len(costs) - max(1, round(wanted)))]

    def _remove(self, i: int, gone: Tensor) -> None:
        """Empty their columns in all consumers and let the others take over.

        Hidden units then leave the network: those columns, and their rows below.
        """
        stay = _others(self.network.operators[i].n_in, gone)
        for link, metric in self._consumers(i):
            op = self._latent(link)
            columns = op.columns_of(gone)
            metric.empty(op, columns, self._latent(self.network.into(link.layer)[0]))
            if i == 0:  # inputs still come
                metric.dead = torch.cat([metric.dead, columns])
            else:
                self._select(link, stay, torch.arange(op.n_out))
                metric.select(op.columns_of(stay))
            metric.refresh()
            self._project(link.layer)
        if i:
            self.units[i - 1] = self.units[i - 1][stay]
            for link in self.network.into(i - 1):
                self._select(link, torch.arange(link.operator.n_in), stay)

    def _select(self, link: Link, below: Tensor, above: Tensor) -> None:
        """Keep only the weights between these units."""
        place = _place(link)
        if place in self.latents:
            self.latents[place] = self.latents[place].select(below, above)
        self.network.replace(link, link.operator.select(below, above))

    def state(self) -> dict[str, Tensor]:
        """All that the next batch depends on, by name."""
        tensors = {"k": torch.tensor(self.k), "typical_costs": self.typical_costs}
        tensors |= {f"units{i}": units for i, units in enumerate(self.units)}
        for link, metric in self._blocks:
            place = _place(link)
            tensors[f"W{place}"] = self._latent(link).weight
            tensors |= {f"{name}{place}": value for name, value in metric.state().items()}
        return tensors

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()``, with the units that were left then.

        Numbers of units stay on the CPU.
        """
        device = self.network.device
        self.k, self.typical_costs = int(state["k"]), state["typical_costs"].clone()
        self.units = [state[f"units{i}"] for i in range(len(self.units))]
        widths = [self.network.operators[0].n_in, *(len(units) for units in self.units)]
        for link, metric in self._blocks:
            place = _place(link)
            operator = link.operator.resized(state[f"W{place}"].to(device), widths[link.source])
            self.network.replace(link, operator)
            metric.restore({name: state[f"{name}{place}"].to(device) for name in metric.state()})
        if self.settings.weights != "real" and self.k:
            self._begin_projection()
            for i in range(len(self.network.layers)):
                self._project(i)


def _place(link: Link) -> str:
    """Of a link in the names of a state: the number of its layer, marked if it is a shortcut."""
    return f"{link.layer}" if link.source == link.layer else f"{link.layer}-shortcut"


def _empty_columns(op: Operator) -> Tensor:
    """Of inputs that were removed earlier: they stay so."""
    return (op.linear == 0).all(dim=0).nonzero().flatten().cpu()


def _others(n: int, gone: Tensor) -> Tensor:
    """The numbers below n that are not in ``gone``."""
    stay = torch.ones(n, dtype=torch.bool)
    stay[gone] = False
    return stay.nonzero().flatten()
