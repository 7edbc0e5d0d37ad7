"""Models without the random weights that a checkpoint would only replace: drawing a billion of them takes 40 s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

DRAWS = frozenset({Tensor.normal_, Tensor.uniform_, Tensor.fill_, Tensor.zero_})


class Undrawn(TorchFunctionMode):
    """While it is entered, new parameters keep whatever their memory holds; all else is computed as ever."""

    def __torch_function__(
        self, function: Callable[..., Any], _types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Leave out what writes a parameter's first value; torch.nn.init names the tensor that it gets."""
        given = kwargs or {}
        target = args[0] if args else given.get("tensor")
        is_draw = function in DRAWS or getattr(function, "__module__", None) == "torch.nn.init"
        return target if is_draw and isinstance(target, nn.Parameter) else function(*args, **given)
