"""The position-wise feed-forward network (Vaswani et al. 2017, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from model.config import Activation

ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": partial(nn.GELU, approximate="tanh"),  # GPT-2's
    "silu": nn.SiLU,  # Marian's, there called swish
}


class FeedForward(nn.Module):
    """Two linear maps with an activation between, applied to each position alone."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation) -> None:
        super().__init__()
        self.expand = nn.Linear(d_model, d_ff)
        self.activation = ACTIVATIONS[activation]()
        self.contract = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, d_model) to (B, T, d_model)."""
        contracted: Tensor = self.contract(self.activation(self.expand(x)))
        return contracted
