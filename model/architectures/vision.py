"""The vision transformer (Dosovitskiy et al. 2021): an image is a text whose words are patches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.architectures.initialise import initialise, initialise_blocks_by_width
from model.config import TransformerConfig
from model.layers.attention import Attention, FullAttention
from model.layers.block import Stack
from model.layers.positions import LearnedPositions, grid_table


class VisionTransformer(nn.Module):
    """Patches, each mapped to a vector; a learned CLS before them; an encoder; labels from CLS."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        assert config.vision is not None, "bug: a vision transformer has sizes of images"
        self.config, vision = config, config.vision
        # As published patches lie side by side; with those that overlap, edges are seen whole (Yuan et al. 2021, 3.1).
        self.patches = nn.Conv2d(
            vision.num_channels,
            config.d_model,
            kernel_size=vision.patch_size + 2 * vision.patch_overlap,
            stride=vision.patch_size,
            padding=vision.patch_overlap,
        )
        self.cls = nn.Parameter(torch.zeros(1, 1, config.d_model))
        self.positions = LearnedPositions(config.max_positions, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = Stack(config, config.num_encoder_layers, is_causal=False)
        self.classifier = nn.Linear(config.d_model, config.head.num_labels, bias=config.head.bias)
        initialise(self, config)
        initialise_blocks_by_width(self)
        nn.init.normal_(self.patches.weight, std=self.patches.weight[0].numel() ** -0.5)
        # Places that know their row and column from the first step are learned faster than random ones.
        side = vision.image_size // vision.patch_size
        with torch.no_grad():
            self.positions.weight[1:] = 0.5 * grid_table(side, config.d_model)

    def forward(self, pixels: Tensor, attention: Attention | None = None) -> Tensor:
        """Return the logits of the labels (B, num_labels) of images (B, C, image_size, image_size)."""
        x = self.embed(pixels)
        hidden = self.encoder(x, attention or FullAttention.within(x))
        return self.classifier(hidden[:, 0])

    def embed(self, pixels: Tensor) -> Tensor:
        """Cut images (B, C, H, W) into patches, row by row, and map them: (B, 1 + patches, d_model), CLS first."""
        pixels = pixels.to(self.patches.weight.dtype)  # they come as floats, whatever the weights are
        patches = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand_as(patches[:, 0][:, None]), patches), dim=1)
        return self.dropout(x + self.positions.weight)
