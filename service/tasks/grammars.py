"""From what a request says of its output's form to a compiled grammar: off the event loop, bounded, and kept.

A grammar is compiled twice: first in a process of its own (`grammar_trial.py`), which a hostile one may crash or keep
busy, then here.
"""

from __future__ import annotations

import json
import logging
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from llguidance import regex_to_lark

from model.package import Detokenizer, Manifest, PackageTokenizer
from model.package.token_bytes import NoBytes
from service.engine.admission import Permit
from service.engine.grammar import LIMITS, GrammarError, Vocabulary
from service.engine.grammar import Grammar as Compiled
from service.errors import InvalidRequest, ServerOverloaded
from service.schemas import Grammar
from service.schemas.grammar import MAX_CHARACTERS
from service.tasks.grammar_trial import NotTried, complaint_about
from service.tasks.json_schemas import as_meant
from service.tasks.pool import SMALL, Pool

logger = logging.getLogger(__name__)

# Grammars of a model, and the characters of all of them. Usual ones take up to a megabyte, much used ones of thousands
# of choices twenty.
MAX_CACHED, MAX_CACHED_CHARACTERS = 32, 2**18
SHOWN = 300  # characters of what is wrong

# JSON on one line: a model that knows little of JSON would fill its answer with white space. Without \u, by which a key
# could be another one in disguise. A schema may say nothing of this itself, nor that parts of it need not be kept.
ONE_LINE = {
    "whitespace_flexible": False,
    "item_separator": ", ?",
    "key_separator": ": ?",
    "json_allowed_escapes": 'nrbtf\\"',
}
LENIENT = {**ONE_LINE, "lenient": True}
# Characters that JSON can write by \u alone: llguidance would leave one out of a text or a key without a word.
CONTROL = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")
# A pattern's parts, and those that are one such character alone; classes of several characters lose nothing but these.
# What is never closed goes to the end, and is read but once.
PARTS = re.compile(r"\[(?:\\.|[^\]\\])*+(?:\]|\\?\Z)|\\(?:[xuU]\{[^}]*+(?:\}|\Z)|x..|u.{4}|U.{8}|.)|.", re.DOTALL)
SPELT = re.compile(
    r"\[?\\(?:[av]|(?:x|u00|U0{6})(?:0[0-7bBeEfF]|1[0-9a-fA-F]|7[fF])|[xuU]\{0*(?:[0-7bBeEfF]|1[0-9a-fA-F]|7[fF])\})\]?"
)
# Of a complaint: the place, and a line that is quoted, with a mark below.
PLACE, QUOTED_LINE = re.compile(r"^at \d+\(\d+\): "), re.compile(r"^\s*(\d+ \| |\^\s*$)")
# Masks allow every way to encode a text, so nothing is ever encoded for them. It stands last, where it moves no line of
# the client's.
OPTIONS = '\n%llguidance {"no_forcing": true}'
# Of Lark what is no rule: texts, patterns, comments. And llguidance's names of tokens, which are no client's to know.
# What is not closed matches too, or ends at the next mark: it would be read again from each of them.
QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*+"?|/(?!/)(?:\\.|[^/\\])++/?|(?:#|//)[^\n]*+')
TOKEN = re.compile(r"<\[[^\]\n]*+\]?>?|<\|?[A-Za-z_][^<>\n]*+>")
SPACE = '" " '


class Grammars:
    """The grammars of one model that requests have asked for."""

    def __init__(self, manifest: Manifest, tokenizer: PackageTokenizer, pool: Pool) -> None:
        """`pool` is for nothing else: a grammar may take seconds."""
        self._name, self._tokenizer, self._pool = manifest.name, tokenizer, pool
        self._kept: OrderedDict[str, Compiled | str] = OrderedDict()  # or what is wrong
        self._vocabulary: Vocabulary | str
        self._spaced: int | None = None  # a token that shows whether a text's first space is dropped
        end = manifest.special_ids.end
        assert end is not None, "bug: a model that generates has an end"
        try:
            found = tokenizer.token_bytes()
        except NoBytes as error:
            self._vocabulary = f"model {self._name!r} cannot follow a grammar: {error}"
        else:
            self._vocabulary = Vocabulary(found.texts, end, manifest.vocab_size)
            if found.drops_space:
                self._spaced = next((token for token, text in enumerate(found.texts) if _is_spaced(text)), None)

    async def compiled(self, asked: Grammar, prompts: Sequence[Sequence[int]], permit: Permit) -> list[Compiled]:
        """Return what the output behind each prompt has to follow. Others go on meanwhile.

        Raises `InvalidRequest`, and `ServerOverloaded` where there was no time or memory to try it.
        """
        if isinstance(self._vocabulary, str):
            raise InvalidRequest(self._vocabulary, "grammar")
        form = _form_of(asked)
        begins = [self._begins_text(prompt) for prompt in prompts]
        larks = {begins_text: lark_of(asked, form, behind_space=begins_text) for begins_text in set(begins)}
        is_tried = asked.choice is None  # a list of texts can do no harm
        found: dict[bool, Compiled] = {}
        for begins_text, lark in larks.items():
            made = await self._one(self._vocabulary, lark, permit, is_tried=is_tried)
            if isinstance(made, str):
                raise InvalidRequest(f"grammar: {in_one_line(made, is_own=asked.lark is not None)}", "grammar")
            found[begins_text] = made
        return [found[begins_text] for begins_text in begins]

    async def of_rules(self, rules: str, prompt: Sequence[int], permit: Permit, param: str) -> Compiled | str:
        """Return what the output behind a prompt has to follow by rules of ours, or what is wrong with them.

        Raises as `compiled` does; `param` is the field that asks for them.
        """
        if isinstance(self._vocabulary, str):
            raise InvalidRequest(self._vocabulary, param)
        lark = _behind_space(rules) if self._begins_text(prompt) else rules + OPTIONS
        return await self._one(self._vocabulary, lark, permit, is_tried=True)

    async def _one(self, vocabulary: Vocabulary, lark: str, permit: Permit, *, is_tried: bool) -> Compiled | str:
        """Return a grammar, or what is wrong with it, and keep it for the next request."""
        if (found := self._kept_one(lark)) is None:
            try:
                found = await self._pool.run(permit, SMALL + 1, self._compile, vocabulary, lark, is_tried=is_tried)
            except NotTried as error:
                logger.warning("model %s: a grammar could not be tried: %s", self._name, error)
                raise ServerOverloaded("the grammar could not be compiled in time; try again") from None
            self._kept[lark] = found
        self._kept.move_to_end(lark)
        while len(self._kept) > MAX_CACHED or sum(map(len, self._kept)) > max(MAX_CACHED_CHARACTERS, len(lark)):
            self._kept.popitem(last=False)
        return found

    def _kept_one(self, lark: str) -> Compiled | str | None:
        """Return a grammar that is kept and not worn out, or what is wrong with it."""
        found = self._kept.get(lark)
        return None if isinstance(found, Compiled) and found.is_spent else found

    def _compile(self, vocabulary: Vocabulary, lark: str, *, is_tried: bool) -> Compiled | str:
        """Return a grammar, or what is wrong with it; of those that ask for the same at once only the first works.

        Raises `NotTried`.
        """
        if (found := self._kept_one(lark)) is not None:
            return found
        complaint = complaint_about(lark, LIMITS) if is_tried else None
        if complaint is None:
            try:
                return vocabulary.grammar(lark)
            except GrammarError as error:
                complaint = str(error)
        return complaint

    def _begins_text(self, prompt_ids: Sequence[int]) -> bool:
        """Whether an output's first space is not shown, as its prompt has no text."""
        if self._spaced is None:
            return False
        return not Detokenizer(self._tokenizer, prompt_ids).add([self._spaced], is_last=True).startswith(" ")


def in_one_line(complaint: str, *, is_own: bool) -> str:
    """Return what is wrong with a grammar; where its rules are not the client's own, without a place in them."""
    lines = [line for line in complaint.splitlines() if "%llguidance" not in line]
    if not is_own:
        lines = [PLACE.sub("", line) for line in lines if not QUOTED_LINE.match(line)]
    return " ".join(" ".join(lines).split())[:SHOWN]


def _is_spaced(text: bytes | None) -> bool:
    return text is not None and text.startswith(b" ") and text[1:].isalpha()


def _form_of(asked: Grammar) -> str:
    """Return what may stand behind a rule's name, or all rules that a request has written itself."""
    form = _written(asked)
    if len(form) > MAX_CHARACTERS:
        raise InvalidRequest(f"grammar has {len(form)} characters; the limit is {MAX_CHARACTERS}", "grammar")
    return form if asked.json_schema is None else json_rule(asked.json_schema)


def json_rule(schema: dict[str, Any], *, is_lenient: bool = False) -> str:
    """Return what stands behind the name of a rule for JSON; raises `InvalidRequest`.

    A lenient one passes over keywords that no grammar knows.
    """
    meant = as_meant(schema)
    _check_characters(meant)
    if '"minProperties"' in json.dumps(meant):
        _check_counts(meant)
    return _of_schema(meant, LENIENT if is_lenient else ONE_LINE)


def _written(asked: Grammar) -> str:
    if asked.json_schema is not None:
        return _of_schema(asked.json_schema, ONE_LINE)
    if asked.regex is not None:
        if (len(asked.regex) - len(asked.regex.rstrip("\\"))) % 2:
            raise InvalidRequest("grammar: regex ends with a backslash that escapes nothing", "grammar")
        return f"/{regex_to_lark(asked.regex, '')}/" if asked.regex else '""'  # // begins a comment
    if asked.choice is not None:
        return " | ".join(map(json.dumps, asked.choice))
    assert asked.lark is not None, "bug: a grammar is one of four"
    if "%llguidance" in asked.lark:
        raise InvalidRequest("grammar: lark has %llguidance, whose options are ours to choose; leave it out", "grammar")
    if (token := TOKEN.search(QUOTED.sub("", asked.lark))) is not None:
        raise InvalidRequest(
            f"grammar: lark names a token, {token[0][:SHOWN]}; write the text that it says in quotes", "grammar"
        )
    return asked.lark


def _of_schema(schema: dict[str, Any], options: dict[str, Any]) -> str:
    return "%json " + json.dumps({**schema, "x-guidance": options})


def _check_characters(schema: object, name: str = "") -> None:
    """Refuse texts, keys and patterns with characters for which JSON has no escape but that by number."""
    if isinstance(schema, str):
        found = CONTROL.search(schema)
        if found is not None or (name == "pattern" and any(map(SPELT.fullmatch, PARTS.findall(schema)))):
            raise InvalidRequest(
                f"grammar: there is a control character in {json.dumps(schema)[:SHOWN]}; "
                "a text may have \\n, \\r, \\t, \\b and \\f, and no other",
                "grammar",
            )
    elif isinstance(schema, dict):
        for key, part in schema.items():
            _check_characters(key, "pattern" if name == "patternProperties" else "")
            _check_characters(part, key)
    elif isinstance(schema, list):
        for part in schema:
            _check_characters(part)


def _check_counts(schema: object) -> None:
    """Refuse what needs two properties without names: llguidance may write the same one twice."""
    if isinstance(schema, dict):
        least, named = schema.get("minProperties"), schema.get("required")
        most = 1 + (len(set(map(str, named))) if isinstance(named, list) else 0)
        if isinstance(least, int) and least > most:
            raise InvalidRequest(
                f"grammar: minProperties is {least}; it may be {most}, one more than are required by name", "grammar"
            )
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _check_counts(part)


def lark_of(asked: Grammar, form: str | None = None, *, behind_space: bool = False) -> str:
    """Return a whole grammar, perhaps with a space before it that the text will not show."""
    form = _form_of(asked) if form is None else form
    if asked.choice is not None:  # as one terminal: of a rule's alternatives the limits allow fewer
        return f"start: {SPACE if behind_space else ''}FORM\nFORM: {form}{OPTIONS}"
    if asked.lark is None:
        return (f"start: {SPACE}form\nform: {form}" if behind_space else f"start: {form}") + OPTIONS
    if not behind_space:
        return form + OPTIONS
    return _behind_space(form)


def _behind_space(rules: str) -> str:
    """Return a grammar that has a space, which the text will not show, before what its rules say."""
    outer = {"name": "spaced", "lark_grammar": f"start: {SPACE}@form{OPTIONS}"}
    return json.dumps({"grammars": [outer, {"name": "form", "lark_grammar": rules}]})
