"""Vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from model.package import Embedding
from service.engine.arrays import Array
from service.errors import EmptyInput, InvalidRequest
from service.schemas import EmbedRequest, EmbedResponse, TextsToEmbed, Usage
from service.tasks.encoder import Encoder, Reading, Texts
from service.tasks.texts import as_list, check_characters, check_copies
from service.turns import Turn


class Embed:
    """An encoder's vectors, near one another where texts mean alike."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._manifest = encoder, encoder.manifest
        self._embedding = encoder.manifest.embedding or Embedding()

    async def predict(self, request: EmbedRequest, client: str) -> EmbedResponse:
        """Return a vector for each text."""
        dimensions = self._dimensions(request)
        vectors, tokens = await self._vectors(request, client)
        normalize = self._embedding.normalize if request.normalize is None else request.normalize
        vectors = vectors[:, :dimensions]
        embeddings, turn = [], Turn()
        for vector in normalized(vectors) if normalize else vectors:
            embeddings.append(vector.tolist())
            await turn.give()
        return EmbedResponse(model=self._manifest.name, embeddings=embeddings, usage=Usage(prompt_tokens=tokens))

    async def _vectors(self, request: EmbedRequest, client: str) -> tuple[Array, int]:
        """Return the encoder's vectors (N, D), and the tokens read."""
        ids = ids_of(request)
        if ids is not None:
            if request.windows:
                raise InvalidRequest("windows goes with texts, and input has token ids", "windows")
            return await self._encoder.read_ids(client, ids, truncate=request.truncate, side=request.truncation_side)
        texts = texts_of(request)
        reading = replace(
            reading_of(request, texts, self._embedding, self._encoder.limit),
            truncate=request.truncate,
            side=request.truncation_side,
            windows=request.windows,
            overlap=request.overlap,
        )
        with self._encoder.admit(client, texts, reading) as permit:
            return await self._encoder.read(permit, texts, reading)

    def _dimensions(self, request: EmbedRequest) -> int:
        """Return how many numbers of each vector are wanted."""
        most, trained = self._manifest.dimensions, self._embedding.matryoshka
        wanted = most if request.dimensions is None else request.dimensions
        if wanted > most:
            raise InvalidRequest(f"dimensions is {wanted}; the limit is {most}", "dimensions")
        if trained and wanted not in {*trained, most}:
            allowed = ", ".join(map(str, sorted({*trained, most})))
            raise InvalidRequest(f"dimensions is {wanted}; this model's vectors may have {allowed}", "dimensions")
        return wanted


def ids_of(request: TextsToEmbed) -> list[list[int]] | None:
    """Return a request's token ids, which are read as they are; None where it has texts."""
    ids = request.ids()
    for field in ("prompt", "prompt_name") if ids is not None else ():
        if getattr(request, field):
            raise InvalidRequest(f"{field} goes with texts, and input has token ids", field)
    return ids


def texts_of(request: TextsToEmbed) -> list[tuple[str]]:
    """Return a request's texts, of which there is one at least."""
    texts = [(text,) for text in as_list(request.input)]  # type: ignore[arg-type]  # no ids, hence texts
    if not texts:
        raise EmptyInput("input is empty; send at least one text", "input")
    return texts


def reading_of(request: TextsToEmbed, texts: Sequence[Texts], embedding: Embedding, limit: int) -> Reading:
    """Return how texts are read behind the request's prompt, by a model that reads so many tokens."""
    param = "prompt" if request.prompt_name is None else "prompt_name"
    prompt = _prompt(request, embedding, limit)
    check_copies(len(prompt) * len(texts), param)
    return Reading(prompt=prompt, repeated_param=param)


def _prompt(request: TextsToEmbed, embedding: Embedding, limit: int) -> str:
    """Return what goes before each text."""
    name, prompts = request.prompt_name, embedding.prompts
    if request.prompt is not None and name is not None:
        raise InvalidRequest("prompt and prompt_name are two ways to say one thing; send one", "prompt")
    if request.prompt is not None:
        check_characters(request.prompt, limit, "prompt")
        return request.prompt
    if name is None:
        return embedding.prompt()
    if name not in prompts:
        there = ", ".join(prompts) if prompts else "none; put the prompt before the text"
        raise InvalidRequest(f"prompt_name is {name!r}; this model has {there}", "prompt_name")
    return prompts[name]


def normalized(vectors: Array) -> Array:
    """Return vectors (N, D) with length 1; those of length 0 stay."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
    unit: Array = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return unit
