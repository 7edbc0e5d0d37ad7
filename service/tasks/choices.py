"""From a sequence's outputs to the text of its choices."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from model.package import Detokenizer, PackageTokenizer
from service.engine.logprobs import SampledToken
from service.engine.mailbox import Output
from service.engine.sequence import Sequence
from service.schemas import FinishReason, GenerateRequest, TokenLogprob, TopLogprob
from service.tasks.prompts import Prompt
from service.tasks.stopping import StopTexts
from service.tasks.texts import as_list


@dataclass
class Piece:
    """New text of one choice, with the tokens behind it."""

    index: int  # of the choice
    text: str
    tokens: list[TokenLogprob] | None = None
    finish_reason: FinishReason | None = None
    score: float | None = None
    completion_tokens: int = 0


class ChoiceText(Protocol):
    """Reads the outputs of a sequence of its own."""

    sequence: Sequence

    @property
    def is_done(self) -> bool:
        """Whether nothing that may still come is wanted."""

    def read(self, output: Output) -> Iterator[Piece]:
        """Yield the pieces of text that an output brings."""


class SampledChoice:
    """The one choice of a sequence that is sampled."""

    def __init__(
        self, tokenizer: PackageTokenizer, request: GenerateRequest, prompt: Prompt, sequence: Sequence, index: int
    ) -> None:
        self.sequence = sequence
        self._prompt = prompt
        self._tokenizer, self._request, self._index = tokenizer, request, index
        self._detokenizer = Detokenizer(tokenizer, sequence.prompt_ids)
        self._stop_texts = StopTexts(as_list(request.stop or []))
        self._unstoppable = request.min_tokens or 0  # tokens that are left which no stop text ends
        self._echoes = request.echo  # not yet done

    @property
    def is_done(self) -> bool:
        """Whether a stop text has come, or the prompt was all that was asked for."""
        return self._stop_texts.is_met or (self._request.max_tokens == 0 and not self._echoes)

    def read(self, output: Output) -> Iterator[Piece]:
        """Yield the prompt first if it is to be echoed, then the new text."""
        if self._echoes:
            self._echoes = False
            yield echo(self._tokenizer, self._request, self._prompt, output.prompt, self._index)
            if self._request.max_tokens == 0:  # the engine has written one, for nothing else comes with scores
                yield Piece(self._index, "", finish_reason="length")
        if self.is_done:
            return
        text, begins = self._text(output)
        used = len(begins)
        reason = "stop" if self.is_done else output.finish_reason
        assert reason != "error", "bug: an error is raised, not yielded"
        tokens = None
        if self._request.logprobs is not None:
            end = [output.end] if output.end is not None and not self.is_done else []
            begins.append(self._detokenizer.begins)
            tokens = token_logprobs(self._tokenizer, [*output.tokens[:used], *end], begins)
        yield Piece(self._index, text, tokens, reason, completion_tokens=used)

    def _text(self, output: Output) -> tuple[str, list[bool]]:
        """Return an output's text up to a stop text, and of each token that it takes whether no text stands before."""
        ids, is_last = [token.id for token in output.tokens], output.finish_reason is not None
        # What waited for a slow reader was merged. Tokens behind a stop text must not count for that, and each has the
        # text that it has where readers are quick.
        is_stepwise = ids and (self._request.stop or self._request.logprobs is not None)
        steps = [[token] for token in ids] if is_stepwise else [ids]
        text, begins = "", list[bool]()
        for place, step in enumerate(steps, start=1):
            ends = is_last and place == len(steps)
            begins += [self._detokenizer.begins] * len(step)
            piece = self._detokenizer.add(step, is_last=ends)
            text += piece if self._unstoppable > 0 else self._stop_texts.add(piece, is_last=ends)
            self._unstoppable -= len(step)
            if self.is_done:
                break
        return text, begins


class SearchedChoices:
    """The `n` best hypotheses of a prompt's beam search, each whole."""

    is_done = False  # a search is wanted to its end

    def __init__(
        self,
        tokenizer: PackageTokenizer,
        request: GenerateRequest,
        prompt: Prompt,
        sequence: Sequence,
        first_index: int,
    ) -> None:
        self.sequence = sequence
        self._prompt = prompt
        self._tokenizer, self._request, self._first_index = tokenizer, request, first_index

    def read(self, output: Output) -> Iterator[Piece]:
        """Yield all choices once the search is over."""
        if output.finish_reason is None:
            return
        tokenizer, request, prompt = self._tokenizer, self._request, self._prompt
        for rank in range(request.n):
            best = output.hypotheses[min(rank, len(output.hypotheses) - 1)]
            stop_texts, index = StopTexts(as_list(request.stop or [])), self._first_index + rank
            detokenizer, least = Detokenizer(tokenizer, prompt.ids), request.min_tokens or 0
            text = "".join(detokenizer.add([token]) for token in best.ids[:least])
            text += stop_texts.add(detokenizer.add(best.ids[least:], is_last=True), is_last=True)
            reason: FinishReason = "stop" if stop_texts.is_met else best.finish_reason
            if request.echo:
                yield echo(tokenizer, request, prompt, [], index)
            yield Piece(index, text, None, reason, best.score, len(best.ids))


def echo(
    tokenizer: PackageTokenizer,
    request: GenerateRequest,
    prompt: Prompt,
    scored: abc.Sequence[SampledToken],
    index: int,
) -> Piece:
    """Return the prompt as the first piece of a choice; `scored` are its tokens behind the first."""
    tokens = None
    if request.logprobs is not None:
        token = prompt.ids[0]
        first = TokenLogprob(token, tokenizer.decode([token]), [], bytes=tokenizer.bytes_of_part(token))
        # A start token stands before a text without being part of it.
        is_shown = bool(first.text) or request.ids() is not None
        begins = [not first.text, *[False] * len(scored)]
        tokens = [*([first] if is_shown else []), *token_logprobs(tokenizer, scored, begins)]
    return Piece(index, tokenizer.decode(prompt.ids) if prompt.text is None else prompt.text, tokens)


def token_logprobs(
    tokenizer: PackageTokenizer, tokens: abc.Sequence[SampledToken], begins: abc.Sequence[bool]
) -> list[TokenLogprob]:
    """Return tokens and their alternatives as the answer has them; `begins`: whether no text stands before each."""
    found = []
    for token, is_first in zip(tokens, begins[: len(tokens)], strict=True):
        text_of = tokenizer.text_of if is_first else tokenizer.text_behind
        top: list[TopLogprob] = [
            {"id": other, "text": text_of[other], "logprob": logprob} for other, logprob in token.top
        ]
        for other in top:
            if (part := tokenizer.bytes_of_part(other["id"])) is not None:
                other["bytes"] = part
        part = tokenizer.bytes_of_part(token.id)
        found.append(TokenLogprob(token.id, text_of[token.id], top, token.logprob, part))
    return found
