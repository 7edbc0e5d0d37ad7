"""What all tasks over an encoder of texts share: permits, tokens within limits, windows, and the way to the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from model.package import Manifest, PackageTokenizer
from model.package.part import Side
from service.engine.admission import Permit
from service.engine.arrays import Array
from service.engine.batcher import Batcher
from service.engine.inputs import TextInput
from service.errors import EmptyInput, InvalidRequest, TooLarge
from service.schemas import Response
from service.settings import Limits
from service.tasks.held import Held
from service.tasks.long_texts import LongText, TooManyTokens, encode_long
from service.tasks.pool import Pool
from service.tasks.texts import check_ids, check_length, expected_tokens, no_tokens, one_shot_inputs, truncated, which
from service.turns import Turn

Texts = tuple[str, ...]  # one, or a pair

WEIGHTS_HELD = 2**26  # numbers: a quarter of a gigabyte
OVERLAP_DIVISOR = 4  # neighbouring windows share a quarter of their text, unless a request says otherwise
REPEATED_DIVISOR = 2  # what every window repeats (a question, a prompt) takes half of it at most


@dataclass(frozen=True)
class Reading:
    """How a request's texts are read: their prompt, the field they come from, and what happens to those too long.

    These are cut (`truncate`) or read in `windows`, and refused if neither is asked for.
    """

    truncate: bool = False
    side: Side | None = None  # what a text that is cut loses; none: as the manifest says
    windows: bool = False
    overlap: int | None = None
    cut_part: int | None = None  # which text of a pair is cut, or read in windows; unless given, the longer one is cut
    prompt: str = ""  # before each text, and in each window
    param: str = "input"  # the field that brings the texts
    repeated_param: str = "input"  # and that which brings what is read with each of them, and in each window
    inputs_per_text: int = 1  # in a row, that are of one text of the request

    def __post_init__(self) -> None:
        if self.truncate and self.windows:
            raise InvalidRequest("truncate and windows are two ways with long texts; choose one", "windows")
        if self.side is not None and not self.truncate:
            raise InvalidRequest(f"truncation_side is {self.side}, which goes with truncate: true", "truncation_side")


@dataclass(frozen=True, eq=False)
class Windows:
    """A long text, the windows that it is read in, and the encoder's answer to each."""

    text: LongText
    ranges: list[range]
    rows: list[Array]


class Encoder:
    """An encoder's session, with its tokenizer."""

    def __init__(
        self, manifest: Manifest, tokenizer: PackageTokenizer, batcher: Batcher, pool: Pool, limits: Limits
    ) -> None:
        self.manifest, self.tokenizer, self.pool = manifest, tokenizer, pool
        self.limit = manifest.limits.max_input_tokens
        self._batcher, self._max_rows, self._max_windows = batcher, limits.max_rows, limits.max_inputs
        self.by_word = Held(WEIGHTS_HELD)  # answers with a number for each word of the vocabulary, until they are read

    def admit(self, client: str, texts: Sequence[Texts], reading: Reading) -> Permit:
        """Let a request in by what its texts are expected to cost; raises `Overloaded`, `TooLarge`."""
        self.check_rows(len(texts), reading.param)
        most = None if reading.windows else self.limit
        around_pairs = self.tokenizer.fixed_characters
        lengths = (len(reading.prompt) + sum(map(len, each)) + around_pairs * (len(each) > 1) for each in texts)
        tokens = expected_tokens(lengths, most)
        rows = max(len(texts), tokens // self.limit) if reading.windows else len(texts)
        return self._batcher.admission.admit(client, rows, tokens)

    async def read(self, permit: Permit, texts: Sequence[Texts], reading: Reading) -> tuple[Array, int]:
        """Return the encoder's answer to each text or pair, (N, labels) or (N, dimensions), and the tokens read.

        The answers to the windows of one text are averaged, each weighted by how many of its tokens are the text's.
        """
        if reading.windows:
            windows, tokens = await self.read_windows(permit, texts, reading)
            return np.stack([_mean(each) for each in windows]), tokens
        inputs = await self.inputs(permit, texts, reading)
        self.settle(permit, inputs)
        return np.stack(await self.run(permit, inputs)), count(inputs)

    async def read_ids(
        self, client: str, rows: Sequence[list[int]], *, truncate: bool, side: Side | None = None
    ) -> tuple[Array, int]:
        """Return the encoder's answer to token ids, (N, dimensions), and how many were read."""
        inputs = self.inputs_of_ids(rows, truncate=truncate, side=side)
        with self.admit_inputs(client, inputs) as permit:
            return np.stack(await self.run(permit, inputs)), count(inputs)

    def inputs_of_ids(self, rows: Sequence[list[int]], *, truncate: bool, side: Side | None = None) -> list[TextInput]:
        """Return token ids as the encoder takes them; raises `InvalidRequest` for what it does not.

        Of a row that is too long the last id stays, which ends it, and what begins every text.
        """
        param = Reading(truncate=truncate, side=side).param
        self.check_rows(len(rows), param)
        side = side or self.manifest.truncation_side
        for row in rows:
            if not row:
                raise EmptyInput(f"{param} has an empty list of token ids; send at least one id", param)
            check_ids(row, self.tokenizer.vocab_size, param)
            if not truncate:
                check_length(len(row), self.limit, param)
        return [TextInput(ids, [0] * len(ids)) for ids in (self._truncated(row, side) for row in rows)]

    def admit_inputs(self, client: str, inputs: Sequence[TextInput]) -> Permit:
        """Let a request in whose costs are known; raises `Overloaded`."""
        return self._batcher.admission.admit(client, len(inputs), count(inputs))

    def _truncated(self, ids: list[int], side: Side) -> list[int]:
        if side == "right" or len(ids) <= self.limit:
            return truncated(ids, self.limit)
        frame = self.tokenizer.encode("")
        return truncated(ids, self.limit, side, is_begun=frame.special[:1] == [True] and ids[0] == frame.ids[0])

    async def inputs(self, permit: Permit, texts: Sequence[Texts], reading: Reading) -> list[TextInput]:
        """Return texts or pairs as the encoder takes them; raises `InvalidRequest` for those that are too long."""
        return await one_shot_inputs(
            self.pool,
            permit,
            self.tokenizer,
            texts,
            self.limit,
            truncate=reading.truncate,
            side=reading.side or self.manifest.truncation_side,
            only=reading.cut_part,
            param=reading.param,
            repeated_param=reading.repeated_param,
            inputs_per_text=reading.inputs_per_text,
            prompt=reading.prompt,
        )

    async def read_windows(self, permit: Permit, texts: Sequence[Texts], reading: Reading) -> tuple[list[Windows], int]:
        """Read texts of any length, or in each pair that which the reading names; return their windows, and the tokens.

        Raises `TooLarge` where they are too many, and `InvalidRequest` where too little room is left in them.
        """
        windows: list[Windows] = []
        rows = 0
        for place, each in enumerate(texts):
            text = await self._long_text(permit, each, reading, self._max_windows - rows)
            if not text.around + len(text.ids):
                raise no_tokens(
                    reading.param, which(place // reading.inputs_per_text, len(texts) // reading.inputs_per_text)
                )
            overlap = self._overlap(text, reading)
            rows += text.count_windows(self.limit, overlap)
            if rows > self._max_windows:
                raise self._too_many_windows(str(rows), reading.param)
            windows.append(Windows(text, text.windows(self.limit, overlap), []))
        inputs, turn = [], Turn()
        for found in windows:
            for window in found.ranges:
                inputs.append(found.text.input(window))
                await turn.give()
        self.settle(permit, inputs)
        answers = iter(await self.run(permit, inputs))
        for found in windows:
            found.rows.extend(next(answers) for _ in found.ranges)
        return windows, count(inputs)

    def settle(self, permit: Permit, inputs: Sequence[TextInput]) -> None:
        """Count what a request costs, now that it is known."""
        permit.settle(len(inputs), cost_of(inputs))

    async def run(self, permit: Permit, inputs: Sequence[TextInput], cost: int | None = None) -> list[Array]:
        """Return the encoder's answer to each input, as `Batcher.run` does; `cost` is that of all of the request."""
        if self.manifest.skips_last_pads:
            inputs = [item.shortened(self.manifest.length_read(item.ids)) for item in inputs]
        return await self._batcher.run(permit, inputs, cost)

    async def _long_text(self, permit: Permit, texts: Texts, reading: Reading, rows: int) -> LongText:
        try:
            return await encode_long(
                self.pool,
                permit,
                self.tokenizer,
                texts,
                part=reading.cut_part or 0,
                prompt=reading.prompt,
                most=max(1, rows) * self.limit,
            )
        except TooManyTokens:
            raise self._too_many_windows(f"more than {self._max_windows}", reading.param) from None

    def _overlap(self, text: LongText, reading: Reading) -> int:
        """Return how many tokens neighbouring windows share."""
        most = self.limit // REPEATED_DIVISOR
        if text.around > most:
            raise InvalidRequest(
                f"{reading.repeated_param} leaves too little of a window to the text: it takes {text.around} tokens "
                f"with what is special; the limit is {most}",
                reading.repeated_param,
            )
        size = self.limit - text.around
        if reading.overlap is None:
            return size // OVERLAP_DIVISOR
        if reading.overlap >= size:
            raise InvalidRequest(f"overlap is {reading.overlap}; the limit is {size - 1} here", "overlap")
        return reading.overlap

    def check_rows(self, rows: int, param: str) -> None:
        """Refuse more texts and pairs than one request may bring."""
        if rows > self._max_rows:
            limit = self._max_rows
            raise TooLarge(f"{param} comes to {rows} texts to read; the limit is {limit} for one request", param)

    def _too_many_windows(self, windows: str, param: str) -> TooLarge:
        limit = self._max_windows  # a window is read as a text is, and so a request may have as many of them
        return TooLarge(f"{param} comes to {windows} windows; the limit is {limit} for one request", param)


def count(inputs: Sequence[TextInput]) -> int:
    """Return how many tokens are read."""
    return sum(item.tokens for item in inputs)


def cost_of(inputs: Sequence[TextInput]) -> int:
    """Return what reading costs, as admission and batches count it."""
    return sum(item.cost for item in inputs)


def _mean(windows: Windows) -> Array:
    weights = [max(1, len(window)) for window in windows.ranges]  # an empty text has one window
    mean: Array = np.average(windows.rows, axis=0, weights=weights)
    return mean


class Answering(Protocol):
    """What answers one kind of request: a class for each task."""

    @property
    def predict(self) -> Callable[..., Awaitable[Response]]:
        """A method that answers a client's request of its kind."""
