"""Chat templates: a conversation as the one text that a model was trained to continue.

Templates are written in Jinja's language and come with the model. They are rendered as `transformers` renders them, in
Jinja's sandbox: without files, modules, private attributes, or changes to what they are given. Every turn of a loop and
every call looks at the clock. What can make much of little (repeating, filling up, joining, replacing, writing into a
form) is refused where it would make more than the whole text may have (`template_bounds.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer
from pydantic import Field

from model.package.part import Part
from model.package.template_bounds import (
    MAX_FACTOR,
    MAX_PRODUCT,
    WIDE_PERCENT,
    TooLongText,
    TooMuch,
    bounded,
    bounded_filter,
    bounds,
    check_form,
    check_length,
    check_text_method,
    look_at_the_clock,
)

__all__ = ["MARK", "ChatTemplate", "TemplateError", "TooLongText", "TooMuch", "compiled", "literals", "render"]

MARK = "\U000f0000"  # a character for private use, which may stand in rendered values and means nothing to a template

MAX_TEMPLATE = 262_144  # characters; the longest known has 20,000


class ChatTemplate(Part):
    """A template, as tokenizers of Hugging Face's format carry it, and the tokens that it names."""

    source: str = Field(max_length=MAX_TEMPLATE)
    tools_source: str | None = Field(
        None, max_length=MAX_TEMPLATE, description="in its place where a request has tools, of models that have another"
    )
    tokens: dict[str, str] = Field({}, description="what the template knows as bos_token, eos_token and the like")


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
    try:
        with bounds(seconds, characters):
            for piece in template.generate(values):  # of which one may be called self
                look_at_the_clock()
                pieces.append(piece)
                length += len(piece)
                if length > characters:
                    raise TooLongText(f"the text has more than {characters} characters")
    except (TemplateError, TooMuch):
        raise
    except Exception as error:  # what a template does to values it was not written for: any error of Python's
        raise TemplateError(f"{type(error).__name__}: {error}") from None
    return "".join(pieces)


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
        self.filters = {name: bounded_filter(name, function) for name, function in self.filters.items()}
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
            check_form(WIDE_PERCENT, left)
        if operator in "%+":
            return bounded(super().call_binop(context, operator, left, right))
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
        check_length(sum(map(len, texts)))
        return "".join(texts)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  # as in Jinja: templates may name an argument self
        """Call a function or macro for a template, if there is time left and it makes nothing too long."""
        look_at_the_clock()
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps `format`
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            check_text_method(method.__name__, owner, [*args, *kwargs.values()])
        return bounded(super().call(__context, __obj, *args, **kwargs))


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
