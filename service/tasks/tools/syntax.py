"""How a model writes calls of tools, found in its chat template: what that writes, the model was trained on."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

from service.tasks.reasoning import CLOSING, OPENING
from service.tasks.tools.call_form import CallForm
from service.tasks.tools.functions import NAME_CHARACTER
from service.tasks.tools.trial import CALLING, CITY, ID, NAME, Trial

SAID = "\u03a9"  # an assistant's message in a trial, with which no call begins
# A message that is a call: before the name, between it and the arguments, these, and behind them.
CALL = re.compile(rf'(.+?){NAME}(.+?)\{{\s*"city"\s*:\s*"{CITY}"\s*\}}(.*)', re.DOTALL)
REASONED = re.compile(rf"\A\s*{OPENING}.*?{CLOSING}", re.DOTALL)
TRIGGER = re.compile(r'[^\s{"]+')
MARK = re.compile(r"<[^\s<>]+>|\[[^\s\[\]]+\]|```|[^\x00-\x7f]")  # what a trigger has and answers seldom have


@dataclass(frozen=True)
class CallSyntax:
    """The texts around a call's name and its arguments, which are JSON."""

    head: str  # before the name
    middle: str  # between the name and the arguments
    tail: str  # behind the arguments
    between: str | None  # of two calls, None where a message has one at most

    @classmethod
    def of(cls, trial: Trial, form: CallForm, written: str, special: re.Pattern[str]) -> CallSyntax | None:
        """Return the syntax in which a template has calls written, None for one that is not read here.

        `written` are the texts of the template: some explain the usual syntax, and write no calls themselves. Special
        tokens are not part of an output's text, so a syntax that has some is not read.
        """
        calling = form.given(CALLING)
        said = trial.text([{"role": "assistant", "content": SAID}], asks=False) or ""
        content = _content(said, trial.text([calling], asks=False))
        is_explained = all(text in written and not special.search(text) for text in USUAL_MARKS)
        found = USUAL if is_explained else None
        if NAME in content:
            content = special.split(content, maxsplit=1)[0].rstrip()  # some end a message in another way behind a call
            found = _of_call(content)
            two = {**calling, "tool_calls": calling["tool_calls"] * 2}
            several = _content(said, trial.text([two], asks=False))
            found = found and replace(found, between=_between(several, content, found, special))
        return found

    @cached_property
    def trigger(self) -> str | None:
        """The text by which a call begins wherever it stands; None where a call is a whole message."""
        found = TRIGGER.match(self.head)
        return found and found[0]


USUAL = CallSyntax('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", "\n")  # as Qwen has it
USUAL_MARKS = ("<tool_call>", "</tool_call>")


def _content(said: str, text: str | None) -> str:
    """Return a conversation's last message, without what stands around the content of one that only says something."""
    before, _, behind = said.partition(SAID)
    before = before.rstrip()
    if text is None or not text.startswith(before):
        return ""
    return REASONED.sub("", text.removeprefix(before).removesuffix(behind)).lstrip()


def _of_call(content: str) -> CallSyntax | None:
    """Return the syntax of a message that is a call, if its parts are found in it."""
    call = CALL.fullmatch(content)
    if call is None or NAME_CHARACTER.match(call[2]) or ID in content or content.count(NAME) > 1:
        return None
    head, middle, tail = call.groups()
    syntax = CallSyntax(head, middle, tail, between=None)
    return syntax if syntax.trigger is None or MARK.search(syntax.trigger) else None


def _between(calls: str, call: str, syntax: CallSyntax, special: re.Pattern[str]) -> str | None:
    """Return what stands between two calls, if both are there and may be told apart."""
    place = calls.find(syntax.head, len(call))
    between = calls[len(call) : place]
    is_told = calls.startswith(call) and place >= 0 and syntax.trigger is not None and not special.search(between)
    return between if is_told else None
