"""What weights are before anything is learned."""

from __future__ import annotations

import math

from torch import nn

from model.config import TransformerConfig
from model.layers.block import Block, Residual


def initialise(module: nn.Module, config: TransformerConfig) -> None:
    """Draw a transformer's weights; biases are 0.

    Where embeddings are scaled up, as in Vaswani et al. 2017: embeddings from N(0, 1/d_model), linear maps uniform
    after Glorot. Else embeddings and heads from N(0, 0.02²), as BERT and GPT do, and the rest from N(0, 1/inputs), so
    that blocks are equally loud at any width; 0.02 would be that for 2,500 inputs.
    """
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=config.d_model**-0.5 if config.scale_embeddings else 0.02)
        elif isinstance(part, nn.Linear | nn.Conv2d):
            if config.scale_embeddings:
                nn.init.xavier_uniform_(part.weight)
            else:
                nn.init.normal_(part.weight, std=0.02 if isinstance(part, nn.Linear) else _fan_in(part) ** -0.5)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    if not config.scale_embeddings:
        branches = sum(isinstance(part, Residual) for part in module.modules())
        for part in module.modules():
            if isinstance(part, Block):
                _initialise_block(part, branches)


def _initialise_block(block: Block, branches: int) -> None:
    """Divide what ends a residual branch by the root of how many are summed (Radford et al. 2019, section 2.3)."""
    attentions = [attention for attention in (block.self_attention, block.cross_attention) if attention is not None]
    ends = {block.feed_forward.contract, *(attention.output for attention in attentions)}
    for part in block.modules():
        if isinstance(part, nn.Linear):
            std = _fan_in(part) ** -0.5
            nn.init.normal_(part.weight, std=std / math.sqrt(branches) if part in ends else std)


def _fan_in(part: nn.Linear | nn.Conv2d) -> int:
    """Return from how many inputs each output comes."""
    return part.weight[0].numel()
