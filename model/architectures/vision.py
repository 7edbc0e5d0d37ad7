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
    """Patches, each mapped to a vector; a learned CLS before them; an encoder; labels from CLS.

    DeiT has a second learned token, and maybe a second head: then the labels are the mean of both.
    """

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
        has_token, has_head = vision.distillation != "none", vision.distillation == "head"
        self.distillation = nn.Parameter(torch.zeros(1, 1, config.d_model)) if has_token else None
        self.positions = LearnedPositions(config.max_positions, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = Stack(config, config.num_encoder_layers, is_causal=False)
        labels, bias = config.head.num_labels, config.head.bias
        self.classifier = nn.Linear(config.d_model, labels, bias=bias)
        self.distillation_classifier = nn.Linear(config.d_model, labels, bias=bias) if has_head else None
        initialise(self, config)
        initialise_blocks_by_width(self)
        nn.init.normal_(self.patches.weight, std=self.patches.weight[0].numel() ** -0.5)
        # Places that know their row and column from the first step are learned faster than random ones.
        side = vision.image_size // vision.patch_size
        with torch.no_grad():
            self.positions.weight[-(side**2) :] = 0.5 * grid_table(side, config.d_model)

    def forward(self, pixels: Tensor, attention: Attention | None = None) -> Tensor:
        """Return the logits of the labels (B, num_labels) of images (B, C, image_size, image_size)."""
        hidden = self.hidden_states(pixels, attention)
        logits = self.classifier(hidden[:, 0])
        if self.distillation_classifier is None:
            return logits
        return (logits + self.distillation_classifier(hidden[:, 1])) / 2

    def hidden_states(self, pixels: Tensor, attention: Attention | None = None) -> Tensor:
        """Return the last hidden states (B, tokens, d_model)."""
        x = self.embed(pixels)
        return self.encoder(x, attention or FullAttention.within(x))

    def embed(self, pixels: Tensor) -> Tensor:
        """Cut images (B, C, H, W) into patches, row by row, and map them: (B, tokens, d_model), CLS first."""
        pixels = pixels.to(self.patches.weight.dtype)  # they come as floats, whatever the weights are
        patches = self.patches(pixels).flatten(2).transpose(1, 2)
        learned = [token for token in (self.cls, self.distillation) if token is not None]
        x = torch.cat((*(token.expand_as(patches[:, 0][:, None]) for token in learned), patches), dim=1)
        return self.dropout(x + self.positions.weight)
