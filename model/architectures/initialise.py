"""What weights are before anything is learned."""

from __future__ import annotations

import math

from torch import nn

from model.config import TransformerConfig
from model.layers.block import Block, Residual


def initialise(module: nn.Module, config: TransformerConfig) -> None:
    """Draw a transformer's weights; biases are 0.

    Where embeddings are scaled up, as in Vaswani et al. 2017: embeddings from N(0, 1/d_model), linear maps uniform
    after Glorot. Else all from N(0, 0.02²), as BERT and GPT do.
    """
    is_scaled = config.embeddings.scale is True
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=config.d_model**-0.5 if is_scaled else 0.02)
        elif isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight) if is_scaled else nn.init.normal_(part.weight, std=0.02)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def initialise_blocks_by_width(module: nn.Module) -> None:
    """Draw the blocks' weights from N(0, 1/inputs), and divide what ends a residual branch by √branches.

    Narrow blocks begin with larger weights than 0.02 (which is 1/√inputs of 2,500 inputs), and images are learned
    faster; texts were learned more slowly when this was tried. The division is GPT-2's (Radford et al. 2019, section
    2.3).
    """
    branches = sum(isinstance(part, Residual) for part in module.modules())
    for block in (part for part in module.modules() if isinstance(part, Block)):
        ends = {block.self_attention.output, block.feed_forward.contract}
        for part in block.modules():
            if isinstance(part, nn.Linear):
                std = part.in_features**-0.5
                nn.init.normal_(part.weight, std=std / math.sqrt(branches) if part in ends else std)
