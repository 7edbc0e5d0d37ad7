"""What one-shot encoders take: texts as ids, or images as pixels; and how several become one batch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from model.package.inputs import encoder_inputs, pad_rows
from service.engine.arrays import Array

MASK_TOKENS = 16  # what a missing word's place in the vocabulary costs, in time and memory of tokens


@dataclass(frozen=True, eq=False)
class TextInput:
    """A text's ids, and for each of them whether it belongs to the first text of a pair (0) or to the second (1).

    `places` are those of missing words, where the model is one that fills them in.
    """

    ids: list[int]
    segment_ids: list[int]
    places: Sequence[int] = ()

    @property
    def tokens(self) -> int:
        """How many it has."""
        return len(self.ids)

    @property
    def cost(self) -> int:
        """What it takes of a batch and of the queue, in tokens."""
        return self.tokens + MASK_TOKENS * len(self.places)

    def shortened(self, length: int) -> TextInput:
        """Return it with no more than the first `length` ids."""
        return self if length >= self.tokens else TextInput(self.ids[:length], self.segment_ids[:length])


@dataclass(frozen=True, eq=False)
class ImageInput:
    """An image's pixels (C, H, W), normalised; `tokens` are its patches and CLS."""

    pixels: Array
    tokens: int

    @property
    def cost(self) -> int:
        """What it takes of a batch and of the queue, in tokens."""
        return self.tokens


OneShotInput = TextInput | ImageInput


def collate(batch: Sequence[OneShotInput], pad: int, wanted: Collection[str]) -> dict[str, Array]:
    """Return of an encoder graph's inputs those that are wanted, for a batch of one kind."""
    images = [item.pixels for item in batch if isinstance(item, ImageInput)]
    if images:
        return {"pixels": np.stack(images)}
    texts = [item for item in batch if isinstance(item, TextInput)]
    ids, lengths = pad_rows([text.ids for text in texts], pad)
    segment_ids = np.zeros_like(ids)
    for row, text in zip(segment_ids, texts, strict=True):
        if any(text.segment_ids):  # looking takes a fraction of what copying does, and most texts are no pairs
            row[: len(text.segment_ids)] = text.segment_ids
    inputs = encoder_inputs(ids, lengths, segment_ids)
    if "logit_positions" in wanted:
        inputs["logit_positions"], _ = pad_rows([text.places for text in texts], 0)
    return {name: array for name, array in inputs.items() if name in wanted}
