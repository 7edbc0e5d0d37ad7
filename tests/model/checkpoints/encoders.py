"""Random encoders of transformers beside ours that are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from model.architectures import TextEncoder
from tests.model.checkpoints.parity import converted, error_of

LENGTHS = (17, 9, 1)  # of a batch's rows


def batch(vocab_size: int, segments: int, pad: int, lengths: Sequence[int] = LENGTHS) -> tuple[Tensor, Tensor, Tensor]:
    """Return random ids, which rows' tokens are real, and segments, (B, T); no real token is the padding."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(3, vocab_size - 1, mask.shape, generator=generator)
    ids = torch.where(ids == pad, vocab_size - 1, ids).where(mask, pad)
    kinds = torch.randint(0, max(1, segments), mask.shape, generator=generator)
    return ids, mask.long(), kinds.where(mask, 0)


@torch.no_grad()
def error_beside(theirs: Any, *, pad: int = 0, lengths: Sequence[int] = LENGTHS, segments: int = 0) -> float:
    """Return how far our answer and last hidden states are from theirs, at most, at real tokens."""
    ours = converted(theirs)
    assert isinstance(ours, TextEncoder)
    ids, mask, kinds = batch(ours.config.vocab_size, segments, pad, lengths)
    more = {"token_type_ids": kinds} if segments else {}
    found = theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True, **more)
    real = mask.bool()
    answer, expected = ours(ids, mask, kinds), _answer(found)
    if answer.dim() == 3:  # of each token
        answer, expected = answer[real], expected[real]
    hidden = ours.encode(ids, mask, kinds)[real], found.hidden_states[-1][real]
    return max(error_of(answer, expected), error_of(*hidden))


def _answer(found: Any) -> Tensor:
    if "start_logits" in found:
        return torch.stack((found.start_logits, found.end_logits), dim=-1)
    answer: Tensor = found["logits" if "logits" in found else "prediction_logits"]
    return answer
