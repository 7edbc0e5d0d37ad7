"""Missing words of texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from service.engine.admission import Permit
from service.engine.arrays import Array
from service.engine.inputs import TextInput
from service.errors import EmptyInput, InvalidRequest, TooLarge
from service.schemas import Candidate, FillRequest, FillResponse, Mask, Usage
from service.tasks.encoder import Encoder, Reading, cost_of, count
from service.tasks.scores import softmax
from service.tasks.texts import as_list

GENERIC = "[MASK]"  # BERT's word for a missing one, which any model understands here
CANDIDATES = 5  # for a missing word, where a request does not say
MASKS = 512  # of one request
MASKS_AT_ONCE = 64  # of one text, and those whose logits are held together
TOKENS_PER_CHARACTER = 16  # of a vocabulary, that are looked through while one character is encoded, for the pool


@dataclass(frozen=True)
class Wanted:
    """How many candidates a missing word gets, and the ids that they are taken from, if not all."""

    count: int
    among: NDArray[np.int64] | None = None


class Fill:
    """An encoder's guesses at missing words."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._manifest = encoder, encoder.manifest
        assert encoder.manifest.special_ids.mask is not None, "bug: the manifest says that fill has one"
        self._id = encoder.manifest.special_ids.mask
        self._word = encoder.tokenizer.token_of(self._id)
        # Models may have rows for ids that are no token's.
        known = min(encoder.tokenizer.vocab_size, self._manifest.vocab_size)
        self._tokens = np.setdiff1d(np.arange(known), encoder.tokenizer.unused_ids)
        self._special = {token for token, is_special in encoder.tokenizer.added_tokens().values() if is_special}
        self._written = re.compile("|".join(map(re.escape, {GENERIC, self._word})))

    async def predict(self, request: FillRequest, client: str) -> FillResponse:
        """Return the candidates for each missing word of each text."""
        texts = as_list(request.input)
        places = [[match.span() for match in islice(self._written.finditer(text), MASKS_AT_ONCE + 1)] for text in texts]
        self._check(texts, places)
        given = [(self._written.sub(lambda _: self._word, text),) for text in texts]
        reading = Reading(truncate=request.truncate)
        with self._encoder.admit(client, given, reading) as permit:
            inputs = [self._masked(item) for item in await self._encoder.inputs(permit, given, reading)]
            candidates = await self._candidates(permit, inputs, self._wanted(request))
        results = []
        for written, item in zip(places, inputs, strict=True):
            found = list(islice(candidates, len(item.places)))
            # Where a text was cut, its last masks may be gone, or its first; a tokenizer may find one where none was
            # written, too.
            lost = max(0, len(written) - len(found)) if self._manifest.truncation_side == "left" else 0
            results.append([Mask(*place, each) for place, each in zip(written[lost:], found, strict=False)])
        return FillResponse(model=self._manifest.name, results=results, usage=Usage(prompt_tokens=count(inputs)))

    def _check(self, texts: list[str], places: list[list[tuple[int, int]]]) -> None:
        if not texts:
            raise EmptyInput("input is empty; send at least one text", "input")
        if not all(places):
            raise InvalidRequest(f"input has a text without {GENERIC}, which stands for a missing word", "input")
        if max(map(len, places)) > MASKS_AT_ONCE:
            raise InvalidRequest(
                f"input has a text with more than {MASKS_AT_ONCE} missing words, which is the limit for one text",
                "input",
            )
        masks = sum(map(len, places))
        if masks > MASKS:
            raise TooLarge(f"input has {masks} missing words; the limit is {MASKS} for one request", "input")

    def _wanted(self, request: FillRequest) -> Wanted:
        if request.targets is None:
            return Wanted(request.top_k or CANDIDATES)
        among = np.unique([self._target(target, is_exact=request.exact_targets) for target in request.targets])
        return Wanted(request.top_k or len(among), among)

    def _target(self, target: str, *, is_exact: bool) -> int:
        """Return the token that a target stands for; `is_exact`: first of all that which is spelt so."""
        tokenizer = self._encoder.tokenizer
        if is_exact:
            with suppress(KeyError):
                return tokenizer.id_of(target)
        ids = tokenizer.encode(target, adds_special=False).ids
        if len(ids) == 1 and (ids[0] not in self._special or tokenizer.token_of(ids[0]) == target):
            return ids[0]
        try:
            return tokenizer.id_of(target)  # a piece of a word, as the vocabulary has it
        except KeyError:
            raise InvalidRequest(
                f"targets has {target!r}, which is no token of this model; a target must be a single one, as /tokenize "
                "shows them",
                "targets",
            ) from None

    def _masked(self, item: TextInput) -> TextInput:
        return replace(item, places=[place for place, token in enumerate(item.ids) if token == self._id])

    async def _candidates(
        self, permit: Permit, inputs: Sequence[TextInput], wanted: Wanted
    ) -> Iterator[list[Candidate]]:
        """Return what could stand in the place of each mask, text by text."""
        self._encoder.settle(permit, inputs)
        cost = cost_of(inputs)
        found = [each for some in _few(inputs) for each in await self._of_few(permit, some, cost, wanted)]
        return iter(found)

    async def _of_few(
        self, permit: Permit, inputs: Sequence[TextInput], cost: int, wanted: Wanted
    ) -> list[list[Candidate]]:
        encoder, found = self._encoder, list[list[Candidate]]()
        masks = sum(len(item.places) for item in inputs)
        async with encoder.by_word.hold(permit, masks * self._manifest.vocab_size):
            for item, logits in zip(inputs, await encoder.run(permit, inputs, cost), strict=True):
                rows = logits[: len(item.places)]
                size = rows.size // TOKENS_PER_CHARACTER
                found += await encoder.pool.run(permit, size, self._likeliest, rows, wanted)
        return found

    def _likeliest(self, logits: Array, wanted: Wanted) -> list[list[Candidate]]:
        """Return the likeliest tokens by each row of logits (P, vocab_size)."""
        return [self._of_one(row, wanted) for row in logits]

    def _of_one(self, logits: Array, wanted: Wanted) -> list[Candidate]:
        ids = self._tokens if wanted.among is None else wanted.among
        count = min(wanted.count, len(ids))
        if wanted.among is None:
            ids = ids[np.argpartition(-logits[ids], count - 1)[:count]]
        ids = ids[np.lexsort((ids, -logits[ids]))][:count]
        scores = softmax(logits)[ids]
        tokenizer = self._encoder.tokenizer
        return [
            Candidate(
                token,
                tokenizer.text_of[token] or tokenizer.token_of(token),
                score,
                continues_word=not tokenizer.text_behind[token].startswith(" "),
            )
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
