"""Items of a conversation as the messages that a chat template reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.api.protocols.openai.items import InputItem
from service.errors import InvalidRequest
from service.schemas import Message


def messages_of(items: str | Sequence[InputItem]) -> list[Message]:
    """Return a conversation's messages, one at least; raises `InvalidRequest`.

    What the model thought, said and called without anybody else between is one message.
    """
    if isinstance(items, str):
        return [Message(role="user", content=items)]
    messages = [Message.model_validate(message) for message in _messages(items)]
    if not messages:
        raise InvalidRequest("input has no message; reasoning without text is none; send a message", "input")
    return messages


@dataclass
class _Own:
    """What the model thought, said and called without anybody else between."""

    thoughts: list[str] = field(default_factory=list)
    text: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)

    def message(self) -> Iterator[dict[str, Any]]:
        """Yield it as a message, if it is anything."""
        fields = {"reasoning_content": "\n".join(self.thoughts), "content": self.text, "tool_calls": self.calls}
        said = {name: value for name, value in fields.items() if value}
        if said or self.text is not None:
            yield {"role": "assistant", **said}


def _messages(items: Sequence[InputItem]) -> Iterator[dict[str, Any]]:
    called: dict[str, str] = {}  # names of functions by the ids of their calls
    own = _Own()
    for place, item in enumerate(items):
        is_own = item.type in ("reasoning", "function_call") or (item.type == "message" and item.role == "assistant")
        # Nothing is thought behind what was said, nor said twice, in one message.
        if not is_own or (item.type != "function_call" and (own.text is not None or own.calls)):
            yield from own.message()
            own = _Own()
        match item.type:
            case "reasoning":
                own.thoughts.append(item.as_text())
            case "function_call":
                function = {"name": item.name, "arguments": item.arguments}
                own.calls.append({"id": item.call_id, "type": "function", "function": function})
                called[item.call_id] = item.name
            case "message" if is_own:
                own.text = item.as_text()
            case "message":
                yield {"role": item.role, "content": item.as_text()}
            case "function_call_output":
                name = {"name": called[item.call_id]} if item.call_id in called else {}
                yield {"role": "tool", "tool_call_id": item.call_id, **name, "content": item.as_text()}
            case _:
                raise InvalidRequest(
                    f"input.{place}.type: {item.type} is not read here; send functions and their outputs", "input"
                )
    yield from own.message()
