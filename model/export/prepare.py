"""What ONNX Runtime's operator asks of a model, without another answer: heads of certain widths, nothing done twice."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from model.architectures import Transformer
from model.config import TransformerConfig
from model.layers.attention import MultiHeadAttention
from model.layers.block import Stack
from model.layers.norms import RMSNorm
from model.layers.relative import DisentangledAttention, RelativeEmbeddings
from model.layers.rotary import Rotary

MULTIPLE = 8  # of which GroupQueryAttention wants the width of a head, and of the halves of one that turns


def padded_width(config: TransformerConfig) -> int:
    """Return how wide a head is in the exported graphs and in their KV cache."""
    if config.positions.kind != "rotary":
        return _rounded(config.head_dim, MULTIPLE)
    turning = config.positions.rotary_dim or config.head_dim
    return _rounded(2 * _rounded(turning // 2, MULTIPLE) + config.head_dim - turning, 2 * MULTIPLE)


def _rounded(width: int, multiple: int) -> int:
    return -(-width // multiple) * multiple


@torch.no_grad()
def prepared(model: Transformer) -> Transformer:
    """Return a model that answers alike and can be exported: itself, or a copy that is padded and has fixed parts."""
    is_padded = padded_width(model.config) != model.config.head_dim
    if not is_padded and not any(isinstance(part, DisentangledAttention) for part in model.modules()):
        return model
    model = copy.deepcopy(model)
    if is_padded:
        _pad_heads(model)
    for stack in [part for part in model.modules() if isinstance(part, Stack)]:
        if isinstance(stack.relative, RelativeEmbeddings):
            for part in stack.modules():
                if isinstance(part, DisentangledAttention):
                    part.fix_positions(stack.relative.vectors())
    return model


def _pad_heads(model: Transformer) -> None:
    """Give each head columns of zeros; scores and sums stay what they were."""
    config, width = model.config, padded_width(model.config)
    places = torch.arange(config.head_dim)  # of a head's features in the wider head
    if config.positions.kind == "rotary":  # the second half of what turns begins where the wider first half ends
        half = (config.positions.rotary_dim or config.head_dim) // 2
        places[half:] += _rounded(half, MULTIPLE) - half
        places[2 * half :] += _rounded(half, MULTIPLE) - half
    for part in list(model.modules()):
        if isinstance(part, MultiHeadAttention):
            for linear in (part.query, part.key, part.value):
                _pad_outputs(linear, places, width)
            part.output.weight = _parameter(_spread(part.output.weight, places, width))
            part.head_dim = width
            for norm in (part.query_norm, part.key_norm):
                if isinstance(norm, RMSNorm):
                    _pad_norm(norm, places, width)
        elif isinstance(part, Rotary):
            more = _rounded(part.cos.shape[1], MULTIPLE) - part.cos.shape[1]
            part.cos = nn.functional.pad(part.cos, (0, more), value=1.0)
            part.sin = nn.functional.pad(part.sin, (0, more))


def _pad_outputs(linear: nn.Linear, places: Tensor, width: int) -> None:
    linear.weight = _parameter(_spread(linear.weight.T, places, width).T.contiguous())
    if linear.bias is not None:
        linear.bias = _parameter(_spread(linear.bias, places, width))


def _pad_norm(norm: RMSNorm, places: Tensor, width: int) -> None:
    """Scale what is divided by the root of a mean over more features, of which the new ones are zero."""
    share = len(places) / width
    norm.weight = _parameter(_spread(norm.weight * math.sqrt(share), places, width))
    norm.epsilon *= share


def _spread(x: Tensor, places: Tensor, width: int) -> Tensor:
    """Put each head's features at their places in a wider one: (…, H · D) → (…, H · width)."""
    heads = x.unflatten(-1, (-1, len(places)))
    wider = heads.new_zeros(*heads.shape[:-1], width)
    wider[..., places] = heads
    return wider.flatten(-2)


def _parameter(x: Tensor) -> nn.Parameter:
    return nn.Parameter(x, requires_grad=False)
