"""Sparse vectors of texts: how much each is about each word of the vocabulary."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from model.package import Embedding, Similarity
from service.engine.admission import Permit
from service.engine.arrays import Array
from service.engine.inputs import TextInput
from service.schemas import EmbedSparseRequest, EmbedSparseResponse, SparseVector, Usage
from service.tasks.embed import ids_of, reading_of, texts_of
from service.tasks.encoder import Encoder, cost_of, count
from service.turns import Turn

Made = TypeVar("Made")

ROWS_AT_ONCE = 64  # whose weights of all words are held together, 8 MB where there are 32,000
WORDS_PER_CHARACTER = 64  # of a vocabulary, that are looked through while one character is encoded, for the pool


@dataclass(frozen=True)
class Sparse:
    """The words that weigh anything, ascending, and their weights: (n,) each."""

    indices: NDArray[np.int32]
    values: NDArray[np.float32]


class EmbedSparse:
    """An encoder's sparse vectors: texts are alike by the words that both are about (SPLADE)."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._manifest = encoder, encoder.manifest
        self._embedding = encoder.manifest.embedding or Embedding()

    async def predict(self, request: EmbedSparseRequest, client: str) -> EmbedSparseResponse:
        """Return each text's words that weigh anything."""
        encoder, ids = self._encoder, ids_of(request)
        sparse = partial(_sparse, most=request.top_k or self._embedding.max_words)
        if ids is not None:
            inputs = encoder.inputs_of_ids(ids, truncate=request.truncate, side=request.truncation_side)
            with encoder.admit_inputs(client, inputs) as permit:
                vectors = await in_parts(encoder, permit, inputs, sparse)
        else:
            texts = texts_of(request)
            reading = reading_of(request, texts, self._embedding, encoder.limit)
            reading = replace(reading, truncate=request.truncate, side=request.truncation_side)
            with encoder.admit(client, texts, reading) as permit:
                inputs = await encoder.inputs(permit, texts, reading)
                encoder.settle(permit, inputs)
                vectors = await in_parts(encoder, permit, inputs, sparse)
        written, turn = [], Turn()
        for vector in vectors:
            written.append(self._written(vector, with_tokens=request.return_tokens))
            await turn.give()
        usage = Usage(prompt_tokens=count(inputs))
        return EmbedSparseResponse.model_construct(model=self._manifest.name, embeddings=written, usage=usage)

    def _written(self, vector: Sparse, *, with_tokens: bool) -> SparseVector:
        indices, tokens = vector.indices.tolist(), None
        if with_tokens:
            tokens = [self._encoder.tokenizer.token_if_any(token) or "" for token in indices]
        # Nothing is to be checked.
        return SparseVector.model_construct(indices=indices, values=vector.values.tolist(), tokens=tokens)


async def in_parts(
    encoder: Encoder,
    permit: Permit,
    inputs: Sequence[TextInput],
    make: Callable[[Sequence[Array]], list[Made]],
    cost: int | None = None,
) -> list[Made]:
    """Return what `make` makes of the encoder's answers to inputs, in the pool; some at a time, as all are large.

    `cost` is that of the whole request, if these are not all of it.
    """
    whole = cost_of(inputs) if cost is None else cost

    async def of(some: Sequence[TextInput]) -> list[Made]:
        async with encoder.by_word.hold(permit, len(some) * encoder.manifest.vocab_size):
            rows = await encoder.run(permit, some, whole)
            return await encoder.pool.run(permit, sum(row.size for row in rows) // WORDS_PER_CHARACTER, make, rows)

    parts = (inputs[start : start + ROWS_AT_ONCE] for start in range(0, len(inputs), ROWS_AT_ONCE))
    return [each for some in parts for each in await of(some)]


async def sparse_similarities(encoder: Encoder, permit: Permit, inputs: Sequence[TextInput]) -> Array:
    """Return how alike (N,) the first input's vector is to those of the N others, each by itself."""
    manifest, cost = encoder.manifest, cost_of(inputs)
    most = manifest.embedding.max_words if manifest.embedding else None
    (first,) = await in_parts(encoder, permit, inputs[:1], partial(_sparse, most=most), cost)
    query = Query(first, manifest.vocab_size)

    def compare(rows: Sequence[Array]) -> list[float]:
        return [query.similarity(manifest.similarity, each) for each in _sparse(rows, most=most)]

    return np.array(await in_parts(encoder, permit, inputs[1:], compare, cost))


class Query:
    """A sparse vector that others are compared with."""

    def __init__(self, vector: Sparse, vocab_size: int) -> None:
        self._weights = np.zeros(vocab_size)
        self._weights[vector.indices] = values = vector.values.astype(np.float64)
        self._sum, self._square = float(values.sum()), float(values @ values)

    def similarity(self, kind: Similarity, other: Sparse) -> float:
        """Return how alike another vector is, as `similarities` does of dense ones."""
        values, shared = other.values.astype(np.float64), self._weights[other.indices]
        if kind == "manhattan":  # words that only the query has are as far from 0 as they weigh
            return -float(np.abs(values - shared).sum() + max(0.0, self._sum - shared.sum()))
        if kind == "euclidean":
            return -math.sqrt(((values - shared) ** 2).sum() + max(0.0, self._square - float(shared @ shared)))
        product = float(shared @ values)
        if kind == "dot":
            return product
        lengths = math.sqrt(self._square * float(values @ values))
        return min(1.0, product / lengths) if lengths else 0.0


def _sparse(rows: Sequence[Array], *, most: int | None) -> list[Sparse]:
    return [_of_row(row.astype(np.float32, copy=False), most) for row in rows]


def _of_row(logits: Array, most: int | None) -> Sparse:
    """Return what weighs anything by a row (V,) of `SparseHead`, of ties the lower ids."""
    indices = np.flatnonzero(~(logits <= 0))  # NaN, too, which is told rather than left out
    if most is not None and len(indices) > most:
        values = logits[indices]
        least = np.partition(values, len(values) - most)[len(values) - most]
        heavier, alike = indices[values > least], indices[values == least]
        indices = np.sort(np.concatenate((heavier, alike[: most - len(heavier)])))
    return Sparse(indices.astype(np.int32), np.log1p(logits[indices]))
