"""What a request with tools asks of a generation: a model that can call them, and a grammar for its output."""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.admission import Permit
from service.engine.grammar import Grammar
from service.errors import InvalidRequest
from service.schemas import GenerateRequest
from service.tasks.chat import Chat
from service.tasks.grammars import Grammars
from service.tasks.tools.functions import callable_functions
from service.tasks.tools.rules import refusal_of, rules_of


def check_calling(request: GenerateRequest, chat: Chat | None) -> None:
    """Refuse what goes with no calls of tools, and a model whose calls are not read; raises `InvalidRequest`.

    That a model has no chat template is said where its prompts are read.
    """
    if request.messages is None:
        raise InvalidRequest("tool_choice goes with messages; send them instead of a prompt", "tool_choice")
    if request.grammar is not None:
        raise InvalidRequest("grammar goes with no tools that may be called; leave out one of the two", "grammar")
    if request.echo:
        raise InvalidRequest("echo goes with no tool_choice; leave it out", "echo")
    callable_functions(request)
    if chat is not None:
        chat.check_calls(request)


async def grammar_of(
    request: GenerateRequest, chat: Chat, grammars: Grammars, prompt_ids: Sequence[int], permit: Permit
) -> Grammar:
    """Return what the output follows: calls that have begun become those of tools, as these are described."""
    functions = callable_functions(request)
    rules = rules_of(
        chat.call_syntax,
        functions,
        must_call=request.must_call,
        several=request.parallel_tool_calls,
        reasoning=chat.reasoning_behind(prompt_ids),
    )
    made = await grammars.of_rules(rules, prompt_ids, permit, "tools")
    if isinstance(made, str):
        raise refusal_of(functions, made)
    return made
