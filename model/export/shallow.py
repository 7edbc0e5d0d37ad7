"""The first layers of a large model: what its float32 graphs are compared with torch by."""

from __future__ import annotations

from dataclasses import replace

import torch

from model.architectures import Transformer, build
from model.config import TransformerConfig


def first_layers(model: Transformer) -> Transformer:
    """Return a model of the first layers, one of each kind at least; its weights are the model's, and not copied."""
    config = model.config
    count = _count(config)
    layers = tuple(layer for layer in config.attention.local_layers if layer < count)
    attention = replace(config.attention, local_layers=layers, window=config.attention.window if layers else None)
    unturned = tuple(layer for layer in config.positions.unturned_layers if layer < count)
    with torch.device("meta"):
        shallow = build(
            replace(
                config,
                attention=attention,
                positions=replace(config.positions, unturned_layers=unturned),
                num_encoder_layers=min(count, config.num_encoder_layers),
                num_decoder_layers=min(count, config.num_decoder_layers),
            )
        )
    weights = model.state_dict()
    shallow.load_state_dict({name: weights[name] for name in shallow.state_dict()}, assign=True)
    buffers = dict(model.named_buffers())
    for path, module in shallow.named_modules():  # tables that are computed, and in no state
        for name in module._buffers:
            module._buffers[name] = buffers.get(f"{path}.{name}" if path else name)
    return shallow.eval()


def _count(config: TransformerConfig) -> int:
    """Return how many layers there are until all kinds, with and without a window, and a rotation, are among them."""
    local, unturned = config.attention.local_layers, config.positions.unturned_layers
    total = max(config.num_encoder_layers, config.num_decoder_layers)
    kinds = [(layer in local, layer in unturned) for layer in range(total)]
    return min(total, max(2, 1 + max(kinds.index(kind) for kind in set(kinds))))
