"""Chat templates: a conversation as the one text that a model was trained to continue.

Templates are written in Jinja's language and come with the model. They are rendered as `transformers` renders them, in
Jinja's sandbox: without files, modules, private attributes, or changes to what they are given. Every turn of a loop and
every call looks at the clock. What can make much of little (repeating, filling up, joining, replacing, writing into a
form) is refused where it would make more than the whole text may have. That is no wall: a template is code of its
model's author, who can still take memory and time by what is not on that list, as lists of lists of themselves.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any, NamedTuple

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer
from pydantic import Field

from model.package.part import Part

__all__ = ["MARK", "ChatTemplate", "TemplateError", "TooMuch", "compiled", "literals", "render"]

MARK = "\U000f0000"  # a character for private use, which may stand in rendered values and means nothing to a template

MAX_TEMPLATE = 262_144  # characters; the longest known has 20,000
MAX_FACTOR, MAX_PRODUCT = 100_000, 1_000_000  # of a template's multiplications
# What takes a number of characters, or of pieces, and makes as many; of all other calls numbers are only passed on.
PADDING_METHODS = frozenset({"center", "expandtabs", "ljust", "rjust", "zfill"})
COUNTING_FILTERS = frozenset({"batch", "center", "indent", "slice", "tojson"})
# What stands in a form's places: widths of very many characters, or widths that are given.
_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(\d{6,}|\*)")
_WIDE_BRACES = re.compile(r"\{[^{}]*(\d{6,}|\{)")


class _Bounds(NamedTuple):
    """Of a rendering: the time of this thread's processor at which it ends, and how long any text of it may be."""

    deadline: float
    characters: int


_bounds: ContextVar[_Bounds] = ContextVar("bounds")


class ChatTemplate(Part):
    """A template, as tokenizers of Hugging Face's format carry it, and the tokens that it names."""

    source: str = Field(max_length=MAX_TEMPLATE)
    tools_source: str | None = Field(
        None, max_length=MAX_TEMPLATE, description="in its place where a request has tools, of models that have another"
    )
    tokens: dict[str, str] = Field({}, description="what the template knows as bos_token, eos_token and the like")


class TooMuch(Exception):
    """Rendering took too long, or made too long a text."""


def compiled(source: str) -> Template:
    """Return a template, ready to be rendered; raises `TemplateError`."""
    try:
        return _Environment().from_string(source)
    except (RecursionError, SyntaxError):  # of the Python that Jinja makes of it, which has limits of its own
        raise TemplateSyntaxError("it is nested too deeply", 1) from None
    except ValueError as error:  # a number of more digits than Python reads
        raise TemplateSyntaxError(str(error), 1) from None


def literals(source: str) -> str:
    """Return the texts that stand in a template itself, with zeros between."""
    tree = _Environment().parse(source)
    texts = [node.data for node in tree.find_all(nodes.TemplateData)]
    texts += [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
    return "\0".join(texts)


def render(template: Template, values: Mapping[str, Any], *, seconds: float, characters: int) -> str:
    """Return a template's text for some values, which are plain JSON; `seconds` are those of the processor.

    Raises `TemplateError`, also for what the template itself refuses, and `TooMuch`. A plain function for any thread.
    """
    pieces, length = [], 0
    token = _bounds.set(_Bounds(time.thread_time() + seconds, characters))
    try:
        for piece in template.generate(**values):
            _look_at_the_clock()
            pieces.append(piece)
            length += len(piece)
            if length > characters:
                raise TooMuch(f"the text has more than {characters} characters")
    except (TemplateError, TooMuch):
        raise
    except Exception as error:  # what a template does to values it was not written for: any error of Python's
        raise TemplateError(f"{type(error).__name__}: {error}") from None
    finally:
        _bounds.reset(token)
    return "".join(pieces)


def _look_at_the_clock() -> None:
    if time.thread_time() > _bounds.get().deadline:
        raise TooMuch("it took too long")


def _bounded(value: Any) -> Any:
    """Return what an operation has made, unless it is longer than the whole text may be."""
    if isinstance(value, str | bytes | list | tuple | dict | set):  # not what is only counted, as a range
        _check_length(len(value))
    return value


def _check_length(length: int) -> None:
    if length > (most := _bounds.get().characters):
        raise TooMuch(f"a value of it has more than {most} characters or parts")


def _check_text_method(name: str, text: str, args: Sequence[Any]) -> None:
    """Refuse to fill up, replace or join to a text that would be too long, before it is made."""
    if name in PADDING_METHODS:
        _check_numbers(args)
    elif name in {"format", "format_map"}:
        _check_form(_WIDE_BRACES, text)
    elif name == "replace" and len(args) > 1 and all(isinstance(each, str) for each in args[:2]):
        _check_length(len(text) + text.count(args[0]) * len(args[1]))
    elif name == "join" and args and isinstance(args[0], list | tuple):
        _check_length(len(text) * len(args[0]) + sum(len(part) for part in args[0] if isinstance(part, str)))


def _check_form(wide: re.Pattern[str], form: str) -> None:
    if wide.search(form):
        raise TooMuch("it would fill up a text too far")


def _check_numbers(values: Sequence[Any]) -> None:
    if any(isinstance(value, int | float) and abs(value) > MAX_FACTOR for value in values):
        raise TooMuch("it would make too large a value")


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that makes nothing too long; Jinja's mark that it wants the context first stays on it."""
    is_given_more = hasattr(function, "jinja_pass_arg")

    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        value, *given = args[is_given_more:]
        if name in COUNTING_FILTERS:
            _check_numbers([*given, *kwargs.values()])
        elif name == "replace" and isinstance(value, str):
            parts = dict(zip(("old", "new"), given, strict=False)) | kwargs
            _check_text_method(name, value, [parts.get("old"), parts.get("new")])
        elif name == "format" and isinstance(value, str):
            _check_form(_WIDE_PERCENT, value)
        elif name == "join":
            between = given[0] if given else kwargs.get("d", "")
            _check_text_method(name, between if isinstance(between, str) else "", [value])
        return _bounded(function(*args, **kwargs))

    return bounded


class _Concatenations(NodeTransformer):
    """Lets `a ~ b` call something that looks at how long it becomes."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802  # Jinja's name for it
        """Return the call in its place."""
        parts = [self.visit(part) for part in node.nodes]
        joined = nodes.EnvironmentAttribute("joined", lineno=node.lineno)
        return nodes.Call(joined, parts, [], None, None, lineno=node.lineno)


class _GenerationBlock(Extension):
    """{% generation %} … {% endgeneration %}: marks what an assistant wrote, for training; means nothing here."""

    tags = {"generation"}  # noqa: RUF012  # as Jinja has it

    def parse(self, parser: Parser) -> nodes.Node:
        """Return what stands in the block."""
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with the filters and functions that templates expect."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})  # by which a short text, or a number, becomes a huge one

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols])
        self.filters["tojson"] = _to_json
        self.filters = {name: _bounded_filter(name, function) for name, function in self.filters.items()}
        del self.globals["lipsum"]  # which makes as many paragraphs as it is told to
        self.globals |= {
            "raise_exception": _raise,
            "strftime_now": _strftime_now,
            "dict": _Dict(),
            "namespace": _Namespace,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse a template, and let every turn of its loops call something, for `call` to look at the clock."""
        tree: nodes.Template = _Concatenations().visit(super()._parse(source, name, filename))
        for loop in tree.find_all(nodes.For):
            turn = nodes.Call(nodes.EnvironmentAttribute("turn"), [], [], None, None, lineno=loop.lineno)
            loop.body.insert(0, nodes.ExprStmt(turn, lineno=loop.lineno))
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Multiply two small numbers, repeat a text some times, add, or write numbers into a text."""
        if operator == "%" and isinstance(left, str):
            _check_form(_WIDE_PERCENT, left)
        if operator in "%+":
            return _bounded(super().call_binop(context, operator, left, right))
        sizes = [value if isinstance(value, int | float) else len(value) for value in (left, right)]
        if max(map(abs, sizes)) > MAX_FACTOR or abs(sizes[0] * sizes[1]) > MAX_PRODUCT:
            raise TooMuch(f"{operator} would make too large a value")
        return super().call_binop(context, operator, left, right)

    @staticmethod
    def turn() -> str:
        """Do nothing, once a turn of a loop."""
        return ""

    @staticmethod
    def joined(*parts: Any) -> str:
        """Write values one behind the other."""
        texts = [str(part) for part in parts]
        _check_length(sum(map(len, texts)))
        return "".join(texts)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  # as in Jinja: templates may name an argument self
        """Call a function or macro for a template, if there is time left and it makes nothing too long."""
        _look_at_the_clock()
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps `format`
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            _check_text_method(method.__name__, owner, [*args, *kwargs.values()])
        return _bounded(super().call(__context, __obj, *args, **kwargs))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without HTML's escapes, which Jinja's own filter makes; a mark is never escaped."""
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return text.replace(json.dumps(MARK)[1:-1], MARK)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


class _Dict:
    """`dict` for templates, without the class and what hangs on it."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Sequence[Any], value: Any = None) -> dict[Any, Any]:
        """Return a dictionary in which all keys have one value."""
        return dict.fromkeys(keys, value)


class _Namespace(Namespace):
    """`namespace` for templates, whose attributes are none of Python's own."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *given = args  # as in Jinja: a namespace may have an attribute called self
        attributes = dict(*given, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot have the attribute {name!r}")
