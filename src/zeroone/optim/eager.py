"""Run compiled modules eagerly while a batch is observed, because compiled code skips hooks."""

from typing import Any

from torch import nn


class Eager:
    """Makes the compiled parts of one model run eagerly for a while."""

    def __init__(self) -> None:
        self._changed: list[tuple[nn.Module, str, Any]] = []

    def do(self, model: nn.Module) -> None:
        """Run eagerly from now on."""
        for module in model.modules():
            plain = module._modules.get("_orig_mod")
            if plain is not None:  # torch.compile(module)
                self._set(module, "forward", plain.__call__)
            elif module._compiled_call_impl is not None:  # module.compile()
                self._set(module, "_compiled_call_impl", None)

    def _set(self, module: nn.Module, name: str, value: Any) -> None:
        self._changed.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    def undo(self) -> None:
        """Return to the compiled code."""
        while self._changed:
            setattr(*self._changed.pop())
