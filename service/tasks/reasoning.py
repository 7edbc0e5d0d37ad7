"""What a model that reasons writes before its answer, between two marks."""

from __future__ import annotations

from enum import Enum, auto

from service.tasks.stopping import beginning_of

OPENING, CLOSING = "<think>", "</think>"  # of all families that are served here
TAIL = 16  # of a prompt's tokens, which tell whether it ends with an opening mark


class Reasoning(Enum):
    """Where an output stands at its beginning."""

    NONE = auto()  # the model is not known to reason
    POSSIBLE = auto()
    BEGUN = auto()  # the prompt has opened it


class ReasoningReader:
    """Tells an output's reasoning from its answer, as it comes; space around the marks is left out."""

    def __init__(self, state: Reasoning) -> None:
        self._state = state
        self._held = ""
        self._strips = state is not Reasoning.NONE  # the beginning of what comes next

    def add(self, text: str, *, is_last: bool = False) -> tuple[str, str]:
        """Return the reasoning and the text of the answer that can be told by now."""
        self._held += text
        reasoning = ""
        if self._state is Reasoning.POSSIBLE:
            self._begin(is_last=is_last)
        if self._state is Reasoning.BEGUN:
            reasoning = self._inside(is_last=is_last)
        return reasoning, self._rest() if self._state is Reasoning.NONE else ""

    def _begin(self, *, is_last: bool) -> None:
        begun = self._held.lstrip()
        if begun.startswith(OPENING):
            self._held, self._state = begun.removeprefix(OPENING), Reasoning.BEGUN
        elif is_last or not OPENING.startswith(begun):
            self._state, self._strips = Reasoning.NONE, False

    def _inside(self, *, is_last: bool) -> str:
        reasoning, closing, answer = self._held.partition(CLOSING)
        if closing:
            reasoning, self._held, self._state = reasoning.rstrip(), answer, Reasoning.NONE
        else:
            known = len(reasoning) - (0 if is_last else beginning_of(CLOSING, reasoning))
            reasoning = reasoning[:known].rstrip()
            self._held = self._held[len(reasoning) :]
        if self._strips:
            reasoning = reasoning.lstrip()
        self._strips = bool(closing) or (self._strips and not reasoning)
        return reasoning

    def _rest(self) -> str:
        text, self._held = self._held, ""
        if self._strips:
            text = text.lstrip()
            self._strips = not text
        return text
