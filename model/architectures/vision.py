"""The vision transformer (Dosovitskiy et al. 2021): an image is a text whose words are patches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.architectures.encoder import Encoder
from model.architectures.initialise import initialise, initialise_blocks_by_width
from model.config import TransformerConfig
from model.layers.positions import LearnedPositions, grid_table
from model.layers.ragged import RaggedSelfAttention


class VisionTransformer(nn.Module):
    """Patches, each mapped to a vector; a learned CLS before them; an encoder; labels from CLS."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        # As published patches lie side by side; with those that overlap, edges are seen whole (Yuan et al. 2021, 3.1).
        self.patches = nn.Conv2d(
            config.num_channels,
            config.d_model,
            kernel_size=config.patch_size + 2 * config.patch_overlap,
            stride=config.patch_size,
            padding=config.patch_overlap,
        )
        self.cls = nn.Parameter(torch.zeros(1, 1, config.d_model))
        self.positions = LearnedPositions(config.max_positions, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.classifier = nn.Linear(config.d_model, config.num_labels)
        initialise(self, config)
        initialise_blocks_by_width(self)
        nn.init.normal_(self.patches.weight, std=self.patches.weight[0].numel() ** -0.5)
        # Places that know their row and column from the first step are learned faster than random ones.
        side = config.image_size // config.patch_size
        with torch.no_grad():
            self.positions.weight[1:] = 0.5 * grid_table(side, config.d_model)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the logits of the labels (B, num_labels) of images (B, C, image_size, image_size)."""
        return self.classify(self.encoder(self.embed(pixels)))

    def forward_ragged(self, pixels: Tensor) -> Tensor:
        """Return the same, as the exported graph does; all rows are equally long."""
        config = self.config
        last = torch.full((pixels.shape[0],), config.num_patches, dtype=torch.int32)
        length = torch.tensor(config.num_patches + 1, dtype=torch.int32)
        attention = RaggedSelfAttention(last, length, config.num_heads, config.kv_heads)
        return self.classify(self.encoder.forward_ragged(self.embed(pixels), attention))

    def embed(self, pixels: Tensor) -> Tensor:
        """Cut images (B, C, H, W) into patches, row by row, and map them: (B, 1 + patches, d_model), CLS first."""
        pixels = pixels.to(self.patches.weight.dtype)  # they come as floats, whatever the weights are
        patches = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(pixels.shape[0], -1, -1), patches), dim=1)
        embedded: Tensor = self.dropout(x + self.positions.weight)
        return embedded

    def classify(self, hidden: Tensor) -> Tensor:
        """Map hidden states (B, T, d_model) to the logits of the labels, (B, num_labels)."""
        logits: Tensor = self.classifier(hidden[:, 0])
        return logits
