"""Word embeddings to begin with: what stands near what, counted and factorised.

Masked-word training takes long to find out which words are alike, and counting takes a minute. The positive pointwise
mutual information of words within a window, factorised by SVD, gives vectors like word2vec's (Levy and Goldberg 2014,
"Neural Word Embedding as Implicit Matrix Factorization").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

WINDOW = 5  # tokens to either side; one at distance d counts 1/d
SMOOTHING = 0.75  # of the contexts' frequencies, or rare ones would seem to say much (Levy et al. 2015)
SIZE = 0.05  # root mean square of the vectors' numbers


def cooccurrence_embeddings(
    texts: Sequence[Sequence[int] | NDArray[np.int64]], vocab_size: int, width: int
) -> tuple[Tensor, Tensor]:
    """Return vectors (vocab_size, width) of the tokens of some texts, and the logarithms of their frequencies."""
    counts = torch.zeros(vocab_size * vocab_size)
    stream = torch.from_numpy(np.concatenate([np.asarray(text, np.int64) for text in texts]))
    for distance in range(1, WINDOW + 1):
        near = stream[:-distance] * vocab_size + stream[distance:]
        counts.scatter_add_(0, near, torch.full((len(near),), 1 / distance))
    counts = counts.view(vocab_size, vocab_size)
    counts = counts + counts.T
    frequency = counts.sum(0)
    context = frequency**SMOOTHING
    # In place from here on: such a matrix of 16,000 words takes a gigabyte.
    information = counts.div_((frequency[:, None] * (context / context.sum())).clamp_(min=1e-9))
    information.clamp_(min=1.0).log_()  # the positive part, for what is not there says nothing
    left, strengths, _ = torch.svd_lowrank(information, q=width, niter=2)
    vectors = left * strengths.sqrt()
    lengths = vectors.norm(dim=1, keepdim=True)
    # A token that was never seen stays at zero, and learns from there.
    vectors = vectors / lengths.clamp(min=1e-6) * (SIZE * width**0.5)
    smoothed = torch.bincount(stream, minlength=vocab_size) + 1
    return vectors, (smoothed / smoothed.sum()).log()
