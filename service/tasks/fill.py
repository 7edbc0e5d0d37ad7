"""Missing words of texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from service.engine.admission import Permit
from service.engine.inputs import TextInput
from service.engine.session import Array
from service.errors import EmptyInput, InvalidRequest, TooLarge
from service.schemas import Candidate, FillRequest, FillResponse, Mask, Usage
from service.tasks.encoder import Encoder, Reading, count
from service.tasks.scores import softmax
from service.tasks.texts import as_list

GENERIC = "[MASK]"  # BERT's word for a missing one, which any model understands here
MASKS = 512  # of one request
MASKS_AT_ONCE = 64  # of one text, and those whose logits are held together
TOKENS_A_CHARACTER = 16  # of a vocabulary, that are looked through while one character is encoded, for the pool


class Fill:
    """An encoder's guesses at missing words."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._manifest = encoder, encoder.manifest
        assert encoder.manifest.special_ids.mask is not None, "bug: the manifest says that fill has one"
        self._id = encoder.manifest.special_ids.mask
        self._word = encoder.tokenizer.token_of(self._id)
        self._written = re.compile("|".join(map(re.escape, {GENERIC, self._word})))

    async def predict(self, request: FillRequest, client: str) -> FillResponse:
        """Return the candidates for each missing word of each text."""
        texts = as_list(request.input)
        places = [[match.span() for match in self._written.finditer(text)] for text in texts]
        self._check(texts, places)
        given = [(self._written.sub(lambda _: self._word, text),) for text in texts]
        reading = Reading(truncate=request.truncate)
        with self._encoder.admit(client, given, reading) as permit:
            inputs = [self._masked(item) for item in await self._encoder.inputs(permit, given, reading)]
            candidates = await self._candidates(permit, inputs, request.top_k)
        results = [
            # Where a text was cut, its last masks may be gone.
            [Mask(*place, next(candidates)) for place, _ in zip(written, item.places, strict=False)]
            for written, item in zip(places, inputs, strict=True)
        ]
        return FillResponse(model=self._manifest.name, results=results, usage=Usage(prompt_tokens=count(inputs)))

    def _check(self, texts: list[str], places: list[list[tuple[int, int]]]) -> None:
        if not texts:
            raise EmptyInput("input is empty; send at least one text", "input")
        if not all(places):
            raise InvalidRequest(f"input has a text without {GENERIC}, which stands for a missing word", "input")
        longest = max(map(len, places))
        if longest > MASKS_AT_ONCE:
            raise InvalidRequest(
                f"input has a text with {longest} missing words; the limit is {MASKS_AT_ONCE} for one text", "input"
            )
        masks = sum(map(len, places))
        if masks > MASKS:
            raise TooLarge(f"input has {masks} missing words; the limit is {MASKS} for one request", "input")

    def _masked(self, item: TextInput) -> TextInput:
        return replace(item, places=[place for place, token in enumerate(item.ids) if token == self._id])

    async def _candidates(self, permit: Permit, inputs: Sequence[TextInput], top_k: int) -> Iterator[list[Candidate]]:
        """Return what could stand in the place of each mask, text by text."""
        self._encoder.settle(permit, inputs)
        found: list[list[Candidate]] = []
        for some in _few(inputs):
            for item, logits in zip(some, await self._encoder.run(permit, some), strict=True):
                size = logits[: len(item.places)].size // TOKENS_A_CHARACTER
                found += await self._encoder.pool.run(permit, size, self._likeliest, logits[: len(item.places)], top_k)
        return iter(found)

    def _likeliest(self, logits: Array, top_k: int) -> list[list[Candidate]]:
        """Return the likeliest tokens by each row of logits (P, vocab_size)."""
        return [self._of_one(row, min(top_k, len(row))) for row in logits]

    def _of_one(self, logits: Array, top_k: int) -> list[Candidate]:
        ids = np.argpartition(-logits, top_k - 1)[:top_k]
        ids = ids[np.lexsort((ids, -logits[ids]))]
        scores = softmax(logits)[ids]
        return [
            Candidate(token, self._encoder.tokenizer.text_of(token) or self._encoder.tokenizer.token_of(token), score)
            for token, score in zip(ids.tolist(), scores.tolist(), strict=True)
        ]


def _few(inputs: Sequence[TextInput]) -> Iterator[list[TextInput]]:
    """Part inputs so that each part has `MASKS_AT_ONCE` places at most."""
    some: list[TextInput] = []
    for item in inputs:
        if some and sum(len(each.places) for each in [*some, item]) > MASKS_AT_ONCE:
            yield some
            some = []
        some.append(item)
    yield some
