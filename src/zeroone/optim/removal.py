"""The l2,0 penalty in stochastic BCD: units leave a model while it trains, by ``keep`` or ``lam``.

In the W block's own metric M = R^-1, the prox of the l2,0 penalty would search all sets of columns.
We take its greedy form: the units that are cheapest to remove leave, and the remaining columns
change so that the whole set costs least. This has a closed form (optimal brain surgeon, Hassibi and
Stork 1993, here for whole columns).
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from zeroone.optim.graph import INPUT, UnitGraph, unit_graph
from zeroone.optim.preconditioner import LowRank
from zeroone.utils.checks import InputError, not_negative, share

if TYPE_CHECKING:
    from zeroone.optim.bcd import BCD
    from zeroone.optim.w_block import WBlock

BEGIN, END = 0.1, 0.6  # the part of the training in which units leave
EVENTS = 40  # the number of removals in a training, if units left throughout
RIDGE = 8.0  # damping of M, times the mean variance of the inputs
KEPT = ("units", "widths", "typical")  # in a checkpoint
PER_CHANNEL = ("weight", "bias", "running_mean", "running_var", "scale")


def kept_share(keep: float, progress: float) -> float:
    """Return the share of units to keep now: from 1 to ``keep``, fast first, then slower.

    This is the cubic schedule of Zhu and Gupta (2017).
    """
    t = min(max((progress - BEGIN) / (END - BEGIN), 0.0), 1.0)
    return keep + (1 - keep) * (1 - t) ** 3


def removal_costs(W: Tensor, diagonal: Tensor) -> Tensor:
    """For each column j: min tr(D M D^T) over changes D of W that empty it, ||W_j||^2 / R_jj.

    tr(D M D^T) is the mean square change of the pre-activations, with the damping's ridge.
    ``diagonal`` is that of R = M^-1.
    """
    return W.square().sum(dim=0) / diagonal.clamp_min(1e-30)


def without(W: Tensor, R_gone: Tensor, gone: Tensor) -> Tensor:
    """Solve min tr((X - W) M (X - W)^T) over X with empty columns ``gone``, M = R^-1.

    The other columns take over as much as they can: X = W - W_gone (R_gone,gone)^-1 R_gone, where
    ``R_gone`` has the rows ``gone`` of R.
    """
    X: Tensor = W - W[:, gone] @ torch.linalg.solve(R_gone[:, gone], R_gone)
    X[:, gone] = 0
    return X


class Removal:
    """Removes units from a model in place: their rows, their columns and what lies between."""

    def __init__(self, bcd: "BCD", keep: float | None, lam: float) -> None:
        if keep is not None and lam:
            raise InputError("give either lam or keep, not both.")
        if keep is not None and share("keep", keep) == 0:
            raise InputError(f"keep must be above 0 and at most 1, got {keep!r}.")
        if bcd.total_steps is None:
            raise InputError("lam and keep need to know when the training ends: total_steps.")
        self.bcd, self.keep, self.lam = bcd, keep, not_negative("lam", lam)
        self.units = {name: torch.arange(b.kind.n_units) for name, b in bcd.blocks.items()}
        self.began: dict[str, int] = {}  # the units of each layer of a model that lost some before
        self.widths: dict[str, int] = {}  # each layer's initial number of labels that may leave
        self.typical: dict[str, float] = {}  # the least mean cost of a unit so far, by layer
        self.graph = UnitGraph()
        self._inputs: Any = None
        self._handle: Any = bcd.model.register_forward_pre_hook(self._remember, with_kwargs=True)

    def _remember(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep one sample of the first batch as an example for probes."""
        self._inputs = tree_map_only(
            Tensor, lambda T: (T[:1] if T.ndim else T).detach().clone(), (args, kwargs)
        )
        self._handle.remove()

    @property
    def settled(self) -> bool:
        """Whether no more units will leave."""
        return 1 - self.bcd.left >= END + 1 / EVENTS

    def due(self, k: int) -> bool:
        """Whether units may leave after batch k."""
        total = self.bcd.total_steps
        assert total is not None
        return k >= BEGIN * total and (k % max(1, total // EVENTS) == 0 or k == total)

    def after_batch(self) -> None:
        """Remove units that are not worth their price, if it is time."""
        if not self.due(self.bcd.k):
            return
        if self._inputs is None:
            raise InputError("keep and lam probe the model: call it, not only its parts.")
        layers = {name: block.kind for name, block in self.bcd.blocks.items()}
        self.graph = unit_graph(self.bcd.model, layers, self._inputs)
        done, costs = torch.empty(0, dtype=torch.long), self._label_costs()
        gone: list[Tensor] = []
        for name, labels in reversed(self.graph.units.items()):
            own = torch.unique(labels[(labels >= 0) & ~torch.isin(labels, done)])
            done, n = torch.cat([done, own]), len(labels)
            self.widths.setdefault(name, len(own) * self.began.get(name, n) // n)
            if len(own):
                gone.append(own[self._leaving(name, costs[own])])
        if gone:
            self._remove(torch.cat(gone))
        if self.lam:
            for block in self.bcd.blocks.values():
                self._empty_inputs(block)

    def _leaving(self, name: str, costs: Tensor) -> Tensor:
        """Return the indices of a layer's units that leave now."""
        if self.keep is not None:
            wanted = kept_share(self.keep, 1 - self.bcd.left) * self.widths[name]
            surplus = max(0, len(costs) - max(1, round(wanted)))
            return costs.argsort(stable=True)[:surplus]
        return self._unpaid(name, costs)

    def _unpaid(self, name: str, costs: Tensor) -> Tensor:
        """Return the units whose removal costs less than their price (for ``lam``).

        The price follows the mean cost of the units that are left, but never rises: otherwise each
        removal would raise it. It may fall: otherwise a layer that removals have upset would lose
        all of its units at once. The most valuable unit always stays.
        """
        if 1 - self.bcd.left > END:
            return torch.empty(0, dtype=torch.long)
        mean = float(costs[costs > 0].mean().nan_to_num())
        typical = self.typical[name] = min(self.typical.get(name, mean), mean)
        gone = (costs > 0) & (costs <= 2 * self.lam * typical)
        gone[costs.argmax()] = False
        return gone.nonzero().flatten()

    def _column_costs(self, block: "WBlock") -> Tensor:
        """Return the cost of each column; changes of hidden units are relative to their scales."""
        assert isinstance(block.moments, LowRank)
        # Not projected weights: they have zeros, whose removal seems to cost nothing.
        W = block.kind.matrix(block.trained[0])
        if block.hidden and block.variance is not None:
            W = W / block.variance.view(*W.shape[:2], 1).clamp_min(1e-12).sqrt()
        diagonal = block.moments.inverse_diagonal(RIDGE / W.shape[2])
        costs = [removal_costs(w, d) for w, d in zip(W, diagonal, strict=True)]
        return torch.cat(costs).double().cpu()

    def _label_costs(self) -> Tensor:
        """Return the cost of each label: the sum over its columns in all layers."""
        n_units = sum(block.kind.n_units for block in self.bcd.blocks.values())
        costs = torch.zeros(n_units, dtype=torch.float64)
        for name, block in self.bcd.blocks.items():
            labels = self.graph.columns.get(name)
            if block.moments is not None and labels is not None and bool((labels >= 0).any()):
                used = labels >= 0
                costs.index_add_(0, labels[used], self._column_costs(block)[used])
        return costs

    def _remove(self, gone: Tensor) -> None:
        """Remove labels from the model and from the optimizer's state."""
        for name, labels in self.graph.columns.items():
            if name not in self.bcd.blocks and (stay := _staying(labels, gone)) is not None:
                self._resize_between(name, stay, len(labels))
        for name, block in self.bcd.blocks.items():
            columns = None
            if name in self.graph.columns and block.kind.groups == 1:
                labels = self.graph.columns[name]
                columns = _staying(labels, gone)
                self._empty(block, torch.isin(labels, gone).nonzero().flatten())
            units = _staying(self.graph.units[name], gone)
            if units is not None or columns is not None:
                self._resize(block, units, columns)

    def _empty(self, block: "WBlock", columns: Tensor) -> None:
        """Empty columns of a layer or of its latent weights; the others and the bias compensate."""
        if not len(columns):
            return
        assert isinstance(block.moments, LowRank)
        weight, bias = block.trained
        W = block.kind.matrix(weight)
        columns = columns.to(W.device)
        X = without(W[0], block.moments.inverse_rows(RIDGE / W.shape[2], columns), columns)
        if bias is not None:
            bias.sub_((X - W[0]) @ block.moments.mean[0])
        W.copy_(X)
        block.kind.store(weight, W)
        block.project()

    def _empty_inputs(self, block: "WBlock") -> None:
        """Empty the columns of inputs that are not worth their price, for good (for ``lam``)."""
        name, weight = block.name, block.kind.weight
        binary = block.group["weights"] == "binary"
        if name not in self.graph.columns or block.kind.groups > 1 or weight.ndim < 2 or binary:
            return
        from_input = (self.graph.columns[name] == INPUT).nonzero().flatten()
        if block.moments is None or not len(from_input):
            return
        size = weight[0, 0].numel()  # columns of one input channel
        none = torch.zeros(weight[0].numel(), dtype=torch.bool)
        dead = none if block.dead is None else block.dead.cpu()
        costs = self._column_costs(block)[from_input].masked_fill(dead[from_input], 0)
        gone = self._unpaid(f"inputs of {name}", costs.reshape(-1, size).sum(dim=1))
        if len(gone):
            columns = from_input.reshape(-1, size)[gone].flatten()
            self._empty(block, columns)
            block.dead = dead.index_fill(0, columns, True).to(weight.device)

    def _resize(self, block: "WBlock", units: Tensor | None, columns: Tensor | None) -> None:
        """Shrink a layer to some units and columns."""
        kind, device = block.kind, block.kind.weight.device
        if units is not None:
            self.units[block.name] = self.units[block.name][units]
        units, columns = (None if T is None else T.to(device) for T in (units, columns))
        block.select(units, columns)
        self.bcd.replace(kind.module, "weight", kind.selected(kind.weight.data, units, columns))
        if units is not None and kind.bias is not None:
            self.bcd.replace(kind.module, "bias", kind.bias.data[units])
        kind.tell_sizes()

    def _resize_between(self, name: str, stay: Tensor, n_before: int) -> None:
        """Shrink a module with one entry per unit: BatchNorm, PReLU or Step."""
        module = self.bcd.model.get_submodule(name)
        for key in PER_CHANNEL:
            T = getattr(module, key, None)
            if not isinstance(T, Tensor) or T.shape[:1] != (n_before,):
                continue
            kept = T.data[stay.to(T.device)]
            if isinstance(T, nn.Parameter):
                state = self.bcd.state.get(T, {})
                state.update({moment: value[stay.to(T.device)] for moment, value in state.items()})
                self.bcd.replace(module, key, kept)
            else:
                setattr(module, key, kept)
        for key in ("num_features", "num_parameters"):
            if getattr(module, key, 1) > 1:
                setattr(module, key, len(stay))

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {name: dict(getattr(self, name)) for name in KEPT}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from ``state()``."""
        for name in KEPT:
            setattr(self, name, dict(state[name]))


def _staying(labels: Tensor, gone: Tensor) -> Tensor | None:
    """Return the indices of labels that stay; None if all do."""
    leaving = torch.isin(labels, gone)
    return (~leaving).nonzero().flatten() if bool(leaving.any()) else None
