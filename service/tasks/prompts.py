"""From what a request brings to what is decoded: a decoder's prompts, or the sources of a model with an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model.package import Manifest, PackageTokenizer
from model.package.tokenizer import Encoding
from service.engine.admission import Permit
from service.errors import EmptyInput, InvalidRequest
from service.schemas import GenerateRequest
from service.tasks.chat import Chat
from service.tasks.pool import SMALL, Pool
from service.tasks.texts import (
    as_list,
    check_characters,
    check_ids,
    check_length,
    encode_all,
    expected_tokens,
    which,
    with_fewer_characters,
)


@dataclass(frozen=True)
class Prompt:
    """What one output continues, or is made of."""

    ids: list[int]  # the decoder's
    source: list[int] | None = None  # the encoder's, where there is one
    text: str | None = None  # as it was sent, where it was a text

    @property
    def tokens(self) -> int:
        """How many tokens the client has sent."""
        return len(self.ids if self.source is None else self.source)


class Prompts:
    """Reads the prompts of requests, within the limits of a model."""

    def __init__(
        self,
        manifest: Manifest,
        tokenizer: PackageTokenizer,
        pool: Pool,
        prefix: str = "",
        param: str = "prompt",
        *,
        plain: bool = False,
    ) -> None:
        """`plain`: whether nothing in a prompt is a special token, whatever it looks like."""
        self._manifest, self._tokenizer, self._pool = manifest, tokenizer, pool
        self._prefix, self._param, self._plain = prefix, param, plain
        assert manifest.special_ids.start is not None, "bug: a model that generates has a start"
        self._start = manifest.special_ids.start
        self._has_source = "encoder" in manifest.graphs
        self._limit = manifest.longest_input
        self.chat = Chat(manifest.chat_template, tokenizer) if manifest.chat_template else None

    def expected(self, request: GenerateRequest) -> tuple[int, int]:
        """Return how many prompts a request brings, and guess their tokens; refuses what is wrong at first sight."""
        self._check(request)
        if request.messages is not None:
            texts = [message.text() for message in request.messages]
            return 1, expected_tokens([sum(map(len, texts))], self._limit)
        ids = request.ids()
        if ids is not None:
            return len(ids), sum(map(len, ids))
        texts = _texts(request)
        return len(texts), expected_tokens(map(len, texts), self._limit)

    async def read(self, request: GenerateRequest, permit: Permit) -> list[Prompt]:
        """Return the prompts, in order; raises `InvalidRequest` for one that is too long."""
        ids = request.ids()
        texts: Sequence[str | None] = [None] * len(ids or [None])  # as they were sent
        if request.messages is not None:
            rows = [await self._conversation(request, permit)]
        elif ids is not None:
            for row in ids:
                check_ids(row, self._tokenizer.vocab_size, self._param)
            rows = ids
        else:
            texts = _texts(request)
            rows = await self._encoded(texts, permit, truncate=request.truncate)
        param = self._param if request.messages is None else "messages"
        for place, row in enumerate(rows):
            check_length(len(row), self._limit, param, which(place, len(rows)))
        if self._has_source:
            return [Prompt([self._start], row) for row in rows]
        return [Prompt(row, text=text) for row, text in zip(rows, texts, strict=True)]

    def _check(self, request: GenerateRequest) -> None:
        if (request.prompt is None) == (request.messages is None):
            raise InvalidRequest("send either prompt or messages", "prompt")
        if request.messages is not None and self.chat is None:
            raise InvalidRequest(
                f"model {self._manifest.name!r} has no chat template; send a prompt instead of messages", "messages"
            )
        if isinstance(request.prompt, list) and not request.prompt:
            raise EmptyInput("prompt is empty; send at least one text", "prompt")
        if not all(request.ids() or [True]):
            raise EmptyInput("prompt has an empty list of token ids; send at least one id", "prompt")
        if request.truncate and not self._has_source:
            raise InvalidRequest(
                "truncate is for models that turn texts into texts; a prompt's end is needed", "truncate"
            )
        if request.echo and self._has_source:
            raise InvalidRequest("echo is for models that continue a prompt; this one reads it as a source", "echo")

    async def _encoded(self, texts: Sequence[str], permit: Permit, *, truncate: bool) -> list[list[int]]:
        side, kept = self._manifest.truncation_side, len(self._prefix.rstrip(" "))
        if truncate:
            texts = [with_fewer_characters(text, self._limit, side) for text in texts]
        for place, text in enumerate(texts):
            check_characters(text, self._limit, self._param, which(place, len(texts)))

        def keep(place: int, encoding: Encoding) -> list[int]:
            row = self._framed(encoding.ids)
            if truncate:
                row = self._framed(encoding.shortened(self._limit, side=side, kept=kept).ids)
                if len(row) > self._limit:  # by the end behind it
                    row = self._framed(encoding.shortened(self._limit - 1, side=side, kept=kept).ids)
                return row
            check_length(len(row), self._limit, self._param, which(place, len(texts)))
            return row

        given = [(self._prefix + text,) for text in texts]
        return await encode_all(self._pool, permit, self._tokenizer, given, keep, plain=self._plain)

    def _framed(self, ids: list[int]) -> list[int]:
        """Return a text's ids with what stands before or behind them."""
        if self._has_source:
            return self._manifest.source_of(ids) if self._manifest.ends_sources or not ids else ids
        return [self._start, *ids] if self._manifest.starts_prompts or not ids else ids

    async def _conversation(self, request: GenerateRequest, permit: Permit) -> list[int]:
        assert self.chat is not None and request.messages is not None, "bug: this was checked"
        characters = sum(len(message.text()) for message in request.messages)
        # A template is code of the model's author: never on the event loop, however short the texts are.
        ids = await self._pool.run(permit, characters + SMALL + 1, self.chat.prompt, request, self._limit)
        return ids or [self._start]


def _texts(request: GenerateRequest) -> list[str]:
    return as_list(request.prompt)  # type: ignore[arg-type]  # no ids and no messages, hence texts
