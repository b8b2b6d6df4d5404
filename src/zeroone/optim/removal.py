"""Remove units from a model while BCD trains it, by ``keep`` or ``lam``."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from zeroone.optim.graph import INPUT, UnitGraph, evaluating, unit_graph
from zeroone.optim.pruning import (
    BEGIN,
    END,
    EVENTS,
    RIDGE,
    empty_columns,
    kept_share,
    removal_costs,
)
from zeroone.utils.checks import InputError, not_negative, share

if TYPE_CHECKING:
    from zeroone.optim.bcd import BCD

PER_CHANNEL = ("weight", "bias", "running_mean", "running_var", "scale")


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
        self.units = {name: torch.arange(kind.n_units) for name, kind in bcd.layers.items()}
        self.widths: dict[str, int] = {}  # each layer's initial number of removable units
        self.typical: dict[str, float] = {}  # the least mean cost of a unit so far, by layer
        self.graph: UnitGraph | None = None
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
        self.graph = unit_graph(self.bcd.model, self.bcd.layers, self._inputs)
        done: set[int] = set()
        gone: list[Tensor] = []
        costs = self._label_costs()
        for name, labels in reversed(self.graph.units.items()):
            own = torch.tensor(
                [x for x in sorted(set(labels.tolist())) if x >= 0 and x not in done],
                dtype=torch.long,
            )
            done.update(own.tolist())
            self.widths.setdefault(name, len(own))
            if len(own):
                gone.append(own[self._leaving(name, costs[own])])
        if gone:
            self._remove(torch.cat(gone))
            self._check_sizes()
        if self.lam:
            for name in self.graph.columns:
                self._empty_inputs(name)

    def _check_sizes(self) -> None:
        """Refuse a model in which something still has its old size."""
        args, kwargs = self._inputs
        try:
            with torch.no_grad(), evaluating(self.bcd.model):
                self.bcd.model(*args, **kwargs)
        except RuntimeError as error:
            said = str(error).split("\n")[0].rstrip(".")
            raise InputError(
                f"keep and lam: a part of the model has its old size: {said}."
            ) from error

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

    def _column_costs(self, name: str) -> Tensor:
        """Return the cost of each column; changes of hidden units are relative to their scales."""
        bcd, kind = self.bcd, self.bcd.layers[name]
        # Projected weights have zeros, whose removal seems to cost nothing.
        W = kind.matrix(bcd.state[kind.weight].get("latent", kind.weight.data))
        if name in bcd.hidden:
            W = W / bcd.state[kind.weight]["variance"].view(*W.shape[:2], 1).clamp_min(1e-12).sqrt()
        diagonal = bcd.moments[name].inverse_diagonal(RIDGE / W.shape[2])
        costs = [removal_costs(w, d) for w, d in zip(W, diagonal, strict=True)]
        return torch.cat(costs).double().cpu()

    def _label_costs(self) -> Tensor:
        """Return the cost of each label: the sum over its columns in all layers."""
        assert self.graph is not None
        costs = torch.zeros(max(1, self.graph.n_labels), dtype=torch.float64)
        for name, labels in self.graph.columns.items():
            used = labels >= 0
            if name in self.bcd.moments and bool(used.any()):
                costs.index_add_(0, labels[used], self._column_costs(name)[used])
        return costs

    def _remove(self, gone: Tensor) -> None:
        """Remove labels from the model and from the optimizer's state."""
        assert self.graph is not None
        if not len(gone):
            return
        for name, kind in self.bcd.layers.items():
            columns = self.graph.columns.get(name)
            stay_columns = None
            if columns is not None and kind.groups == 1:
                leaving = torch.isin(columns, gone)
                if bool(leaving.any()):
                    self._empty(name, leaving.nonzero().flatten())
                    stay_columns = (~leaving).nonzero().flatten()
            leaving = torch.isin(self.graph.units[name], gone)
            stay_units = (~leaving).nonzero().flatten() if bool(leaving.any()) else None
            if stay_columns is not None or stay_units is not None:
                self._resize(name, stay_units, stay_columns)
        for name, labels in self.graph.channels.items():
            leaving = torch.isin(labels, gone)
            if bool(leaving.any()):
                self._resize_between(name, (~leaving).nonzero().flatten())

    def _empty(self, name: str, columns: Tensor) -> None:
        """Empty columns of a layer, or of its latent weights."""
        bcd, kind = self.bcd, self.bcd.layers[name]
        state = bcd.state[kind.weight]
        weight = state.get("latent", kind.weight.data)
        bias = state.get("latent_bias", None if kind.bias is None else kind.bias.data)
        W = kind.matrix(weight)
        columns = columns.to(W.device)
        empty_columns(W[0], bias, bcd.moments[name], RIDGE / W.shape[2], columns)
        kind.store(weight, W)
        bcd.project(name)

    def _empty_inputs(self, name: str) -> None:
        """Empty the columns of inputs that are not worth their price, for good (for ``lam``)."""
        assert self.graph is not None
        bcd, kind = self.bcd, self.bcd.layers[name]
        group = bcd.group_of(name)
        if name not in bcd.moments or kind.groups > 1 or group["weights"] == "binary":
            return
        from_input = (self.graph.columns[name] == INPUT).nonzero().flatten()
        if not len(from_input) or kind.weight.ndim < 2:
            return
        size = kind.weight[0, 0].numel()  # columns of one input channel
        state = bcd.state[kind.weight]
        dead = state.get("dead", torch.zeros(kind.matrix(kind.weight).shape[2], dtype=torch.bool))
        costs = self._column_costs(name)[from_input].masked_fill(dead[from_input].cpu(), 0)
        channels = costs.reshape(-1, size).sum(dim=1)
        gone = self._unpaid(f"inputs of {name}", channels)
        if not len(gone):
            return
        columns = from_input.reshape(-1, size)[gone].flatten()
        self._empty(name, columns)
        dead = dead.clone()
        dead[columns] = True
        state["dead"] = dead

    def _resize(self, name: str, units: Tensor | None, columns: Tensor | None) -> None:
        """Shrink a layer, its moments and its state."""
        bcd, kind = self.bcd, self.bcd.layers[name]
        device = kind.weight.device
        units = None if units is None else units.to(device)
        columns = None if columns is None else columns.to(device)
        groups, n_before = kind.groups, len(kind.weight)
        bcd.replace(kind.module, "weight", kind.selected(kind.weight.data, units, columns))
        state = bcd.state[kind.weight]
        if state.get("latent") is not None:
            state["latent"] = kind.selected(state["latent"], units, columns)
        if units is not None:
            self.units[name] = self.units[name][units.cpu()]
            state["variance"] = state["variance"][units]
            if name in bcd.residuals:
                bcd.residuals[name] = bcd.residuals[name].select(units)
            if kind.bias is not None:
                bcd.replace(kind.module, "bias", kind.bias.data[units].clone())
            if state.get("latent_bias") is not None:
                state["latent_bias"] = state["latent_bias"][units].clone()
        kind.tell_sizes()
        if "dead" in state and columns is not None:
            state["dead"] = state["dead"][columns.cpu()]
        if columns is not None:
            bcd.moments[name] = bcd.moments[name].select(columns)
        elif groups > 1 and units is not None:  # depthwise: each channel has moments of its own
            moments = bcd.moments[name]
            channels = units[:: len(units) // kind.groups] // (n_before // groups)
            bcd.moments[name] = type(moments)(
                **{key: T[channels] for key, T in moments.tensors().items()}
            )

    def _resize_between(self, name: str, stay: Tensor) -> None:
        """Shrink a module with one entry per unit: BatchNorm, PReLU or Step."""
        module = self.bcd.model.get_submodule(name)
        n = len(self.graph.channels[name]) if self.graph is not None else 0
        for key in PER_CHANNEL:
            T = getattr(module, key, None)
            if not isinstance(T, Tensor) or T.ndim == 0 or len(T) != n:
                continue
            kept = T.data[stay.to(T.device)].clone()
            if isinstance(T, nn.Parameter):
                state = self.bcd.state[T]
                for moment, value in state.items():
                    state[moment] = value[stay.to(T.device)].clone()
                self.bcd.replace(module, key, kept)
            else:
                setattr(module, key, kept)
        for key in ("num_features", "num_parameters"):
            if hasattr(module, key) and getattr(module, key) > 1:
                setattr(module, key, len(stay))

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        units, widths, typical = dict(self.units), dict(self.widths), dict(self.typical)
        return {"units": units, "widths": widths, "typical": typical}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state()``."""
        self.units = dict(state["units"])
        self.widths, self.typical = dict(state["widths"]), dict(state["typical"])
