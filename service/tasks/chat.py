"""From a conversation to a prompt, in which only the template writes control tokens.

A control token is a special token, or an added one that the template itself writes, such as <tool_call>. Those that
stand in what the client sent get a mark inside, behind their first character, before the template sees them: it may
cut, strip and search texts, and no part of them is a control token. A text that ends as one begins gets a mark at its
end, as the template may put another behind it. Where a piece of the template has the beginning of one, as the < of
'<' ~ key ~ '>', a text that goes on as that one does gets a mark at its front. (Not seen are beginnings that a template
puts together of several pieces, and letters that it makes small.) Where a mark is left in the rendered text, what it
marks is encoded as plain text. Models write control tokens of the second kind themselves, as <think>, so these stay
what they are in an assistant's messages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jinja2 import Template

from model.package import ChatTemplate, PackageTokenizer
from model.package.chat import MARK, TemplateError, TooLongText, TooMuch, compiled, literals, render
from service.errors import InvalidRequest, TooLong
from service.schemas import GenerateRequest, Message
from service.tasks.reasoning import CLOSING, OPENING, TAIL, Reasoning
from service.tasks.texts import MAX_CHARACTERS_PER_TOKEN
from service.tasks.tools.call_form import CallForm
from service.tasks.tools.syntax import CallSyntax
from service.tasks.tools.trial import Trial

SECONDS = 1.0  # of the processor's time, for one conversation; a usual one takes a millisecond
ASSISTANT, SYSTEM, DEVELOPER, TOOL = "assistant", "system", "developer", "tool"
THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # names for what an assistant has thought; templates know one
OURS = frozenset({"messages", "tools", "documents", "add_generation_prompt"})  # what a request says by other fields
NO_PLACE = (
    "tools: the model's chat template has no place for them in this conversation; leave them out, or for structured "
    "output send a JSON schema (grammar, response_format, or in /v1/responses text.format)"
)
PREFIX = "prefix"  # what says of a conversation's last message, an assistant's, that the answer goes on with it
SURROGATES = re.compile("[\ud800-\udfff]")


class Chat:
    """A model's chat template and the tokens that it writes."""

    def __init__(self, template: ChatTemplate, tokenizer: PackageTokenizer) -> None:
        self._template, self._tokens, self._tokenizer = compiled(template.source), template.tokens, tokenizer
        of_tools = template.tools_source or template.source
        self._tools_template = compiled(of_tools)
        self._takes_tools = "tools" in of_tools
        self._knows_prefixes = PREFIX in template.source
        trial = Trial(self._tools_template, self._tokens, self._takes_tools)
        self._shows_tools = trial.shows_tools()
        self._call_form = CallForm.of(trial) if "tool_calls" in of_tools else CallForm()
        written = literals(template.source) + literals(of_tools)
        self._knows_developers = DEVELOPER in written.split("\0")
        added = tokenizer.added_tokens()
        self._special = {text: token for text, (token, is_special) in added.items() if is_special}
        others = {text: token for text, (token, _) in added.items() if text in written and not text.isspace()}
        self._control = {**others, **self._special}
        pieces = written.split("\0")
        self._specials, self._controls = _Tokens(self._special, pieces), _Tokens(self._control, pieces)
        self._names = {token: text for text, token in self._special.items()}
        self._line = self._ids("\n")
        self._marked = re.compile("|".join([*map(re.escape, map(_mark, _longest_first(self._control))), MARK]))
        self._reasons = CLOSING in written and self._special.keys().isdisjoint((OPENING, CLOSING))
        self._call_syntax = None
        if self._takes_tools:
            self._call_syntax = CallSyntax.of(trial, self._call_form, written, self._specials.pattern)

    @property
    def call_syntax(self) -> CallSyntax:
        """How the model writes calls of tools, where `check_calls` has nothing against it."""
        assert self._call_syntax is not None, "bug: this was not checked"
        return self._call_syntax

    def check_calls(self, request: GenerateRequest) -> None:
        """Refuse a model whose calls of tools cannot be told from its text; raises `InvalidRequest`."""
        self._check_tools(request)
        if self._call_syntax is None:
            raise InvalidRequest(
                "tools: the model's chat template does not show how calls are written in a text, so they cannot be "
                "read; leave tools out, or take calls as text from /generate without tool_choice",
                "tools",
            )

    def reasoning_behind(self, prompt_ids: Sequence[int]) -> Reasoning:
        """Return whether what the model writes behind a prompt may be reasoning, or has begun as such."""
        if not self._reasons:
            return Reasoning.NONE
        end = self._tokenizer.decode(prompt_ids[-TAIL:]).rstrip()
        return Reasoning.BEGUN if end.endswith(OPENING) else Reasoning.POSSIBLE

    def prompt(self, request: GenerateRequest, limit: int) -> list[int]:
        """Return a conversation's ids, at most `limit`; raises `InvalidRequest`, `TooLong`. For any thread."""
        assert request.messages is not None
        self._check_tools(request)
        self._check_prefix(request.messages[-1])
        characters = limit * MAX_CHARACTERS_PER_TOKEN
        neutral = _Neutral(limit)
        values = {
            **self._tokens,
            **self._values(request.chat_template_kwargs, neutral),
            "messages": [self._message(message, neutral) for message in request.messages],
            "tools": neutral.of(request.tools, self._controls),
            "documents": None,
            "add_generation_prompt": request.add_generation_prompt,
        }
        try:
            template = self._tools_template if request.tools else self._template
            text = render(template, values, seconds=SECONDS, characters=characters)
            if self._may_hide_tools(request) and text == _without_tools(template, values, characters):
                raise InvalidRequest(NO_PLACE, "tools")
        except TooLongText:
            raise _too_long(limit) from None
        except TooMuch as error:
            raise InvalidRequest(f"messages: the chat template was stopped: {error}", "messages") from None
        except TemplateError as error:
            raise InvalidRequest(f"messages: the chat template refuses them: {error}", "messages") from None
        return self._encode(text, limit)

    def _may_hide_tools(self, request: GenerateRequest) -> bool:
        """Whether it is to be seen if the template shows a request's tools; behind a call some no longer do."""
        messages = request.messages or []
        has_calls = any(message.role == TOOL or (message.model_extra or {}).get("tool_calls") for message in messages)
        return bool(request.tools) and not self._shows_tools and not has_calls

    def _check_tools(self, request: GenerateRequest) -> None:
        """Refuse tools where the template would leave them out; raises `InvalidRequest`."""
        if request.tools and not self._takes_tools:
            raise InvalidRequest(NO_PLACE, "tools")

    def _check_prefix(self, last: Message) -> None:
        """Refuse a message to go on with where the template would end it; raises `InvalidRequest`."""
        if (last.model_extra or {}).get(PREFIX) and not self._knows_prefixes:
            raise InvalidRequest(
                "messages: the last one has prefix, which the model's chat template does not know: an answer begins a "
                "message of its own; leave prefix out, or send the whole prompt to /v1/completions",
                "messages",
            )

    def _message(self, message: Message, neutral: _Neutral) -> dict[str, Any]:
        tokens = self._specials if message.role == ASSISTANT else self._controls
        fields = {name: value for name, value in message.model_dump().items() if value is not None}
        if fields.get("tool_calls") == []:  # templates ask whether there are calls by whether the name is there
            del fields["tool_calls"]
        if message.content is not None:
            fields["content"] = message.text()
        if message.role == DEVELOPER and not self._knows_developers:
            fields["role"] = SYSTEM  # or most templates would leave it out without a word
        thought = next((fields[name] for name in THOUGHTS if fields.get(name)), None)
        if thought is not None:
            fields |= dict.fromkeys(THOUGHTS, thought)
        given = self._call_form.given(fields)
        role = given.pop("role")  # of which templates make control tokens, as <|user|>; there are no others than ours
        return {"role": role, **{name: neutral.of(value, tokens) for name, value in given.items()}}

    def _values(self, given: dict[str, Any], neutral: _Neutral) -> dict[str, Any]:
        for name in given:
            if name in OURS:
                why = "is not taken here" if name == "documents" else "is a field of its own"
                raise InvalidRequest(f"chat_template_kwargs has {name}, which {why}", "chat_template_kwargs")
        # A template reaches these by their names alone.
        return {name: neutral.of(value, self._controls) for name, value in given.items()}

    def _encode(self, text: str, limit: int) -> list[int]:
        """Encode a rendered text; what is marked is no control token."""
        ids: list[int] = []
        start, piece = 0, ""
        for match in self._marked.finditer(text):
            if len(ids) > limit:  # each mark costs calls of the tokenizer
                raise TooLong(f"messages has more than {limit} tokens, which is the limit", "messages")
            piece += text[start : match.start()]
            start = match.end()
            if match[0] == MARK and not self._parts_a_token(text, match.start()):
                continue
            ids += self._piece(piece, is_first=not ids)
            ids += self._plainly(match[0].replace(MARK, ""))
            piece = ""
        return ids + self._piece(piece + text[start:], is_first=not ids)

    def _parts_a_token(self, text: str, place: int) -> bool:
        """Whether there would be a control token without the mark at a place."""
        near = self._controls.longest
        before = text[max(0, place - near) : place].replace(MARK, "")
        joined = before + text[place : place + near].replace(MARK, "")
        return any(match.start() < len(before) < match.end() for match in self._controls.pattern.finditer(joined))

    def _piece(self, text: str, *, is_first: bool) -> list[int]:
        if not text:
            return []
        ids = self._behind_a_line(text, self._ids) if not is_first else self._ids(text)
        self._check(text, ids)
        return ids

    def _plainly(self, text: str) -> list[int]:
        if not text:
            return []
        encode = self._tokenizer.encode_plainly
        ids = self._behind_a_line(text, encode)
        if self._control[text] in ids:  # as plain text it is the same token, so it is taken apart
            ids = [token for part in (text[:1], text[1:]) for token in self._behind_a_line(part, encode)]
        return ids

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, adds_special=False).ids

    def _behind_a_line(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Encode a text as if it stood within another: at its beginning some tokenizers add a space."""
        ids, length = encode("\n" + text), len(self._line)
        return ids[length:] if ids[:length] == self._line else encode(text)

    def _check(self, text: str, ids: Sequence[int]) -> None:
        """Refuse a text that has more control tokens than it shows: normalised, others may become the same."""
        shown = Counter(match[0] for match in self._specials.pattern.finditer(text))
        for token, count in Counter(self._names[token] for token in ids if token in self._names).items():
            if count > shown[token] and token != self._tokens.get("unk_token"):
                raise InvalidRequest(f"messages: the tokenizer reads a part of them as {token!r}", "messages")


class _Tokens:
    """Some control tokens, and how they, and parts of them, are found in texts; `pieces` are those of the template."""

    def __init__(self, tokens: Iterable[str], pieces: Iterable[str]) -> None:
        ordered = _longest_first(tokens)
        self.pattern = re.compile("|".join(map(re.escape, ordered)) or "(?!)")
        self.longest = len(ordered[0]) if ordered else 0
        self._beginnings = {token[:count] for token in ordered for count in range(1, len(token))}
        # What would complete a token of which the template has the beginning, outside of whole tokens.
        written, rests = "\0".join(self.pattern.sub("\0", piece) for piece in pieces), set[str]()
        for token in ordered:
            for count in range(1, len(token)):
                if token[:count] not in written:
                    break
                rests.add(token[count:])
        self._rests, self._parts_of_rests = rests, {rest[:count] for rest in rests for count in range(1, len(rest))}

    def marked(self, text: str) -> str:
        """Return a text with a mark in each, and at its end or front where one could begin or go on."""
        inner = text.strip()  # as a template may take it
        goes_on, space = self._goes_on(inner), text[: len(text) - len(text.lstrip())]
        text = self.pattern.sub(lambda match: _mark(match[0]), text)
        ends = (text[-count:] for count in range(1, min(self.longest, len(text) + 1)))
        text = text + MARK if any(end in self._beginnings for end in ends) else text
        return space + MARK + text[len(space) :] if goes_on else text

    def _goes_on(self, text: str) -> bool:
        """Whether a text is a part of what would complete a control token, or begins with all of it."""
        if not self._rests:
            return False
        beginnings = (text[:count] for count in range(1, min(self.longest, len(text) + 1)))
        return text in self._parts_of_rests or any(each in self._rests for each in beginnings)


class _Neutral:
    """Marks what looks like control tokens in all that a client sent, up to what `limit` tokens may have."""

    def __init__(self, limit: int) -> None:
        self._limit, self._left = limit, limit * MAX_CHARACTERS_PER_TOKEN

    def of(self, value: Any, tokens: _Tokens) -> Any:
        """Return a value with marks in all that look like these; marks of the client's own are taken out."""
        if isinstance(value, str):
            return self._of_text(value, tokens)
        if isinstance(value, dict):
            return {self.of(key, tokens): self.of(item, tokens) for key, item in value.items()}
        if isinstance(value, list):
            return [self.of(item, tokens) for item in value]
        return value

    def _of_text(self, text: str, tokens: _Tokens) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise _too_long(self._limit)
        if SURROGATES.search(text):
            raise InvalidRequest("messages: there is half a surrogate pair in them", "messages")
        return tokens.marked(text.replace(MARK, ""))


def _too_long(limit: int) -> TooLong:
    return TooLong(
        f"messages, with tools and chat_template_kwargs, has more than {limit * MAX_CHARACTERS_PER_TOKEN} characters; "
        f"the limit is {limit} tokens",
        "messages",
    )


def _without_tools(template: Template, values: dict[str, Any], characters: int) -> str | None:
    """Return what a template writes without tools, which some show only beside a system message; None if it refuses."""
    try:
        return render(template, {**values, "tools": None}, seconds=SECONDS, characters=characters)
    except TemplateError:
        return None


def _mark(token: str) -> str:
    return token[:1] + MARK + token[1:]


def _longest_first(tokens: Iterable[str]) -> list[str]:
    return sorted(filter(None, tokens), key=len, reverse=True)
