"""One output of a model that converses, told apart into reasoning, answer and calls of tools."""

from __future__ import annotations

from collections.abc import Sequence

from service.schemas import GenerateRequest
from service.tasks.chat import Chat
from service.tasks.reasoning import Reasoning, ReasoningReader
from service.tasks.said import Said
from service.tasks.tools.reader import CallReader


class OutputReader:
    """Reads an output as it comes; where nothing is to be told apart, all is text."""

    def __init__(self, reasoning: ReasoningReader | None = None, calls: CallReader | None = None) -> None:
        self._reasoning, self._calls = reasoning, calls

    @property
    def is_within_call(self) -> bool:
        """Whether a call has begun, or must come, whose arguments are not whole."""
        return self._calls is not None and self._calls.is_within_call

    def add(self, text: str, *, is_last: bool) -> Said:
        """Return what can be said by now."""
        reasoning = ""
        if self._reasoning is not None:
            reasoning, text = self._reasoning.add(text, is_last=is_last)
        said = Said(text) if self._calls is None else self._calls.add(text, is_last=is_last)
        said.reasoning = reasoning
        return said


def reader_of(request: GenerateRequest, chat: Chat | None, prompt_ids: Sequence[int]) -> OutputReader:
    """Return who reads one output behind a prompt."""
    if chat is None or not (request.separate_reasoning or request.tool_choice):
        return OutputReader()
    state = chat.reasoning_behind(prompt_ids)
    if request.grammar is not None and state is Reasoning.BEGUN:
        state = Reasoning.NONE  # by its grammar all of it is the answer
    calls = CallReader(chat.call_syntax, must_call=request.must_call) if request.tool_choice else None
    return OutputReader(ReasoningReader(state), calls)
