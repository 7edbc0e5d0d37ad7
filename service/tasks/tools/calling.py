"""What a request with tools asks of a generation: a grammar for the output, and calls read from it."""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.admission import Permit
from service.engine.grammar import Grammar
from service.errors import InvalidRequest
from service.schemas import GenerateRequest
from service.tasks.chat import Chat
from service.tasks.grammars import Grammars
from service.tasks.tools.functions import callable_functions
from service.tasks.tools.reader import CallReader
from service.tasks.tools.rules import refusal_of, rules_of


def check_calling(request: GenerateRequest) -> None:
    """Refuse what goes with no calls of tools, whatever the model; raises `InvalidRequest`."""
    if request.messages is None:
        raise InvalidRequest("tool_choice goes with messages; send them instead of a prompt", "tool_choice")
    if request.grammar is not None:
        raise InvalidRequest("grammar goes with no tools that may be called; leave out one of the two", "grammar")
    if request.echo:
        raise InvalidRequest("echo goes with no tool_choice; leave it out", "echo")
    callable_functions(request)


class Calling:
    """Calls of tools by one model that converses."""

    def __init__(self, chat: Chat, grammars: Grammars) -> None:
        self._chat, self._grammars = chat, grammars

    def check(self, request: GenerateRequest) -> None:
        """Refuse a model whose calls are not read; raises `InvalidRequest`."""
        self._chat.check_tools(request)
        self._chat.check_calls()

    async def grammar(self, request: GenerateRequest, prompt_ids: Sequence[int], permit: Permit) -> Grammar:
        """Return what the output follows: calls that have begun become those of tools, as these are described."""
        functions = callable_functions(request)
        rules = rules_of(
            self._chat.call_syntax,
            functions,
            must_call=request.tool_choice != "auto",
            several=request.parallel_tool_calls,
            reasoning=self._chat.reasoning_behind(prompt_ids),
        )
        made = await self._grammars.of_rules(rules, prompt_ids, permit, "tools")
        if isinstance(made, str):
            raise refusal_of(functions, made)
        return made

    def reader(self, request: GenerateRequest) -> CallReader:
        """Return who reads the output of one choice."""
        return CallReader(self._chat.call_syntax, must_call=request.tool_choice != "auto")
