"""The vision transformer (Dosovitskiy et al. 2021): an image is a text whose words are patches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.architectures.embeddings import initialise
from model.architectures.encoder import Encoder
from model.config import TransformerConfig
from model.layers.positions import LearnedPositions
from model.layers.ragged import RaggedSelfAttention


class VisionTransformer(nn.Module):
    """Patches, each mapped to a vector; a learned CLS before them; an encoder; labels from CLS."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.patches = nn.Linear(config.num_channels * config.patch_size**2, config.d_model)
        self.cls = nn.Parameter(torch.zeros(1, 1, config.d_model))
        self.positions = LearnedPositions(config.max_positions, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.classifier = nn.Linear(config.d_model, config.num_labels)
        initialise(self, config)

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
        size = self.config.patch_size
        cut = pixels.unflatten(3, (-1, size)).unflatten(2, (-1, size))  # (B, C, rows, size, columns, size)
        cut = cut.to(self.patches.weight.dtype)  # pixels come as floats, whatever the weights are
        patches = self.patches(cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2))
        x = torch.cat((self.cls.expand(pixels.shape[0], -1, -1), patches), dim=1)
        embedded: Tensor = self.dropout(x + self.positions.weight)
        return embedded

    def classify(self, hidden: Tensor) -> Tensor:
        """Map hidden states (B, T, d_model) to the logits of the labels, (B, num_labels)."""
        logits: Tensor = self.classifier(hidden[:, 0])
        return logits
