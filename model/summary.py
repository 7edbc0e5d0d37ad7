"""Parameters by layer, and the shape that leaves every layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from model.architectures import EncoderDecoder, TextReader, Transformer, VisionTransformer, build
from model.config import TransformerConfig


@dataclass(frozen=True)
class Layer:
    """One module of a model: its own path, kind, output shape, and parameters with those of its parts."""

    path: str
    kind: str
    shape: tuple[int, ...]
    parameters: int


def summarise(config: TransformerConfig, rows: int = 1, length: int = 16) -> tuple[list[Layer], int]:
    """Run a batch through an untrained model; return its layers in order of running and the count of all parameters.

    A matrix used twice (the tied word embedding) is counted once in the total.
    """
    with torch.device("meta"):  # shapes only: a model of any size takes no memory
        model = build(config).eval()
        layers: list[Layer] = []
        for path, module in model.named_modules():
            if path and not isinstance(module, nn.ModuleList | nn.Dropout | nn.Identity):
                module.register_forward_hook(_recorder(path, layers))
        inputs = _inputs(model, rows, length)
        logits = model(*inputs)
    layers.append(Layer("logits", "output", tuple(logits.shape), 0))
    return layers, sum(parameter.numel() for parameter in model.parameters())


def _inputs(model: Transformer, rows: int, length: int) -> tuple[Tensor, ...]:
    if isinstance(model, VisionTransformer):
        vision = model.config.vision
        assert vision is not None
        return (torch.zeros(rows, vision.num_channels, vision.image_size, vision.image_size),)
    ids = torch.ones(rows, length, dtype=torch.int64)
    if isinstance(model, TextReader):
        return ids, ids
    return (ids, ids, ids) if isinstance(model, EncoderDecoder) else (ids,)


def _recorder(path: str, layers: list[Layer]) -> Callable[[nn.Module, Any, Tensor | tuple[Tensor, ...]], None]:
    def record(module: nn.Module, _inputs: Any, output: Tensor | tuple[Tensor, ...]) -> None:
        count = sum(parameter.numel() for parameter in module.parameters())
        first = output if isinstance(output, Tensor) else output[0]
        layers.append(Layer(path, type(module).__name__, tuple(first.shape), count))

    return record
