"""Between the engine and a request's reader: outputs that wait for a slow reader are merged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, NamedTuple

from service.engine.beam_search import Hypothesis
from service.engine.logprobs import SampledToken

FinishReason = Literal["stop", "length", "grammar", "error"]


class Output(NamedTuple):
    """What a sequence has produced since the last one; the last carries the finish reason (and a search's result).

    A search's tokens come as soon as they are certain; in the end they are the best hypothesis. `prompt` holds the
    prompt's tokens with their log probabilities, where these were asked for. `end` is the token that ended it, which is
    not one of its tokens.
    """

    tokens: Sequence[SampledToken] = ()
    finish_reason: FinishReason | None = None
    hypotheses: Sequence[Hypothesis] = ()
    prompt: Sequence[SampledToken] = ()
    end: SampledToken | None = None

    def followed_by(self, later: Output) -> Output:
        """Return both as one."""
        tokens, prompt = [*self.tokens, *later.tokens], [*self.prompt, *later.prompt]
        return Output(tokens, later.finish_reason, later.hypotheses, prompt, later.end)


class Mailbox:
    """A box of a request, with one place for each of its sequences; nobody's pace becomes another's."""

    def __init__(self) -> None:
        self._outputs: dict[int, Output] = {}
        self._reader: asyncio.Future[None] | None = None

    def put(self, place: int, output: Output) -> None:
        """Leave a sequence's output, or add it to the one that waits."""
        waiting = self._outputs.get(place)
        self._outputs[place] = waiting.followed_by(output) if waiting is not None else output
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def take(self) -> dict[int, Output]:
        """Wait for outputs and take all that there are, by their sequences' places."""
        if not self._outputs:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        outputs, self._outputs = self._outputs, {}
        assert outputs, "bug: the mailbox was opened by two readers"
        return outputs
