from __future__ import annotations

import random

import torch

from model.training.cooccurrence import cooccurrence_embeddings


def test_words_with_like_neighbours_have_like_vectors() -> None:
    rng = random.Random(0)
    # 0 and 1 stand among 10..14, 2 and 3 among 15..19.
    texts = [
        [word if place == 3 else rng.randrange(10 + 5 * (word // 2), 15 + 5 * (word // 2)) for place in range(7)]
        for word in rng.choices(range(4), k=600)
    ]
    torch.manual_seed(0)
    vectors, frequencies = cooccurrence_embeddings(texts, vocab_size=24, width=8)

    def cosine(one: int, other: int) -> float:
        return float(torch.cosine_similarity(vectors[one], vectors[other], dim=0))

    assert min(cosine(0, 1), cosine(2, 3)) > 0.9
    assert max(cosine(0, 2), cosine(1, 3)) < 0.3
    assert bool((vectors[23] == 0).all())  # never seen
    assert frequencies.exp().sum().isclose(torch.tensor(1.0))
    assert frequencies[10] > frequencies[0] > frequencies[23]
