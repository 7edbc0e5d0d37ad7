"""Calls of tools, read from an output as it comes."""

from __future__ import annotations

import re
from collections.abc import Callable

from service.schemas import ToolCallPiece
from service.tasks.said import Said
from service.tasks.stopping import beginning_of
from service.tasks.tools.syntax import CallSyntax

STRUCTURE = re.compile(r'\\.|["{}\[\]\\]', re.DOTALL)  # of JSON; an escape is one, so that its quote is none


class CallReader:
    """Reads one output. What may be the beginning of a call is held back, and space around calls is left out."""

    def __init__(self, syntax: CallSyntax, *, must_call: bool = False) -> None:
        """`must_call`: whether there is nothing but calls, so that what is cut is one, too."""
        self._syntax, self._must_call = syntax, must_call
        self._held = ""
        self._calls = 0
        self._arguments = _JsonObject()
        self._step: Callable[[Said, bool], bool] = self._whole if syntax.trigger is None else self._outside

    @property
    def is_within_call(self) -> bool:
        """Whether a call has begun, or must come, whose arguments are not whole."""
        return self._step in (self._head, self._name, self._inside) or (self._must_call and not self._calls)

    def add(self, text: str, *, is_last: bool = False) -> Said:
        """Return what can be said by now; a call that is cut has the arguments that were there."""
        self._held += text
        said = Said()
        while self._step(said, is_last):
            pass
        return said

    def _whole(self, said: Said, is_last: bool) -> bool:
        """Read the beginning of an output that may be a call as a whole."""
        head, begun = self._syntax.head, self._held.lstrip()
        if not begun and not is_last:
            return False
        if begun and (begun.startswith(head) or head.startswith(begun)):
            self._held, self._step = begun, self._head
        else:
            self._step = self._text
        return True

    def _text(self, said: Said, is_last: bool) -> bool:
        """Read text in which no calls are."""
        said.text += "" if self._calls or self._must_call else self._held
        self._held = ""
        return False

    def _outside(self, said: Said, is_last: bool) -> bool:
        """Read text up to the next call."""
        trigger = self._syntax.trigger
        assert trigger is not None, "bug: without a trigger a call stands alone"
        place = self._held.find(trigger)
        if place >= 0:
            said.text += self._held[:place].rstrip()
            self._held = self._held[place:]
            self._step = self._head
            return True
        if is_last and not self._calls and not self._must_call:
            shown = self._held
        else:
            shown = self._held[: len(self._held) - beginning_of(trigger, self._held)].rstrip()
        said.text += shown
        self._held = self._held[len(shown) :]
        return False

    def _head(self, said: Said, is_last: bool) -> bool:
        head, trigger = self._syntax.head, self._syntax.trigger
        if head.startswith(self._held) and self._held != head:
            return False
        if self._held.startswith(head):
            self._held, self._step = self._held[len(head) :], self._name
        else:  # in a whole message the head ended otherwise; the grammar lets nothing but a head follow a trigger
            assert trigger is None, "bug: the grammar lets nothing else come"
            self._step = self._text
        return True

    def _name(self, said: Said, is_last: bool) -> bool:
        name, middle, rest = self._held.partition(self._syntax.middle)
        if not middle:
            return False
        said.calls.append(ToolCallPiece(index=self._calls, name=name, arguments=""))
        self._held, self._arguments, self._step = rest, _JsonObject(), self._inside
        return True

    def _inside(self, said: Said, is_last: bool) -> bool:
        """Read arguments."""
        length = self._arguments.length_in(self._held)
        if length:
            piece = self._held[:length]
            if said.calls and said.calls[-1].index == self._calls:
                said.calls[-1].arguments += piece
            else:
                said.calls.append(ToolCallPiece(index=self._calls, arguments=piece))
        self._held = self._held[length:]
        if not self._arguments.is_whole:
            return False
        self._calls += 1
        self._step = self._tail
        return True

    def _tail(self, said: Said, is_last: bool) -> bool:
        tail = self._syntax.tail
        if len(self._held) < len(tail):
            return False
        self._held = self._held[len(tail) :]
        self._step = self._text if self._syntax.trigger is None else self._outside
        return True


class _JsonObject:
    """Finds where an object of JSON ends."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_text, self._is_escaped = False, False
        self.is_whole = False

    def length_in(self, text: str) -> int:
        """Return how many characters of a text are the object's, which goes on from what was there before."""
        begin = 1 if self._is_escaped and text else 0
        self._is_escaped = self._is_escaped and not text
        for match in STRUCTURE.finditer(text, begin):
            character = match[0]
            if character == '"':
                self._is_text = not self._is_text
            elif character == "\\":  # of an escape that goes on in the next piece
                self._is_escaped = True
            elif not self._is_text and character in "{[":
                self._depth += 1
            elif not self._is_text and character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self.is_whole = True
                    return match.end()
        return len(text)
