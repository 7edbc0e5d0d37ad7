"""Sparse vectors of texts: how much each is about each word of the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.package import Embedding
from service.engine.admission import Permit
from service.engine.arrays import Array
from service.engine.inputs import TextInput
from service.schemas import EmbedSparseRequest, EmbedSparseResponse, SparseVector, Usage
from service.tasks.embed import ids_of, prompt_of, texts_of
from service.tasks.encoder import Encoder, Reading, count

ROWS_AT_ONCE = 64  # whose weights of all words are held together, 8 MB where there are 32,000
WORDS_PER_CHARACTER = 64  # of a vocabulary, that are looked through while one character is encoded, for the pool


@dataclass(frozen=True)
class Sparse:
    """The words that weigh anything, ascending, and their weights: (n,) each."""

    indices: NDArray[np.int64]
    values: NDArray[np.float32]


class EmbedSparse:
    """An encoder's sparse vectors: texts are alike by the words that both are about (SPLADE)."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._manifest = encoder, encoder.manifest
        self._embedding = encoder.manifest.embedding or Embedding()

    async def predict(self, request: EmbedSparseRequest, client: str) -> EmbedSparseResponse:
        """Return each text's words that weigh anything."""
        encoder, ids = self._encoder, ids_of(request)
        if ids is not None:
            inputs = encoder.inputs_of_ids(ids, truncate=request.truncate, side=request.truncation_side)
            with encoder.admit_inputs(client, inputs) as permit:
                vectors = await sparse_vectors(encoder, permit, inputs, request.top_k)
        else:
            texts, reading = texts_of(request), self._reading(request)
            with encoder.admit(client, texts, reading) as permit:
                inputs = await encoder.inputs(permit, texts, reading)
                encoder.settle(permit, inputs)
                vectors = await sparse_vectors(encoder, permit, inputs, request.top_k)
        return EmbedSparseResponse(
            model=self._manifest.name,
            embeddings=[self._written(vector, with_tokens=request.return_tokens) for vector in vectors],
            usage=Usage(prompt_tokens=count(inputs)),
        )

    def _reading(self, request: EmbedSparseRequest) -> Reading:
        return Reading(
            truncate=request.truncate,
            side=request.truncation_side,
            prompt=prompt_of(request, self._embedding, self._encoder.limit),
            repeated_param="prompt" if request.prompt_name is None else "prompt_name",
        )

    def _written(self, vector: Sparse, *, with_tokens: bool) -> SparseVector:
        indices, tokens = vector.indices.tolist(), None
        if with_tokens:
            tokenizer = self._encoder.tokenizer
            known = tokenizer.vocab_size  # models may have rows for tokens that are none
            tokens = [tokenizer.token_of(token) if token < known else "" for token in indices]
        return SparseVector(indices=indices, values=vector.values.tolist(), tokens=tokens)


async def sparse_vectors(
    encoder: Encoder, permit: Permit, inputs: Sequence[TextInput], most: int | None = None
) -> list[Sparse]:
    """Return the sparse vector of each input, of no more words than `most`; some at a time, as all are large."""
    found: list[Sparse] = []
    for start in range(0, len(inputs), ROWS_AT_ONCE):
        rows = await encoder.run(permit, inputs[start : start + ROWS_AT_ONCE])
        size = sum(row.size for row in rows) // WORDS_PER_CHARACTER
        found += await encoder.pool.run(permit, size, _sparse, rows, most)
    return found


def _sparse(rows: Sequence[Array], most: int | None) -> list[Sparse]:
    return [_of_row(row.astype(np.float32, copy=False), most) for row in rows]


def _of_row(logits: Array, most: int | None) -> Sparse:
    """Return what weighs anything by a row (V,) of `SparseHead`, of ties the lower ids."""
    indices = np.flatnonzero(logits > 0)
    if most is not None and len(indices) > most:
        indices = np.sort(indices[np.argsort(-logits[indices], kind="stable")[:most]])
    return Sparse(indices, np.log1p(logits[indices]))


def products(vector: Sparse, others: Sequence[Sparse], vocab_size: int) -> Array:
    """Return the products (N,) of a vector with others, each by itself: a text's does not depend on the other texts."""
    weights = np.zeros(vocab_size)
    weights[vector.indices] = vector.values
    return np.array([weights[other.indices] @ other.values.astype(np.float64) for other in others])
