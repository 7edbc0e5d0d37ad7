"""What `/v1/responses` takes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from service.api.protocols.nulls import NullsLeftOut
from service.api.protocols.openai.conversation import messages_of
from service.api.protocols.openai.items import InputItems
from service.api.protocols.openai.requests import ConversationRequest
from service.api.protocols.openai.tools import AllowedTools, ToolChosen, fields_of_tools
from service.errors import InvalidRequest
from service.schemas import GenerateRequest, Grammar, Message
from service.schemas.generate import MAX_TOOLS
from service.schemas.request import MAX_INT32, Text, few_entries, whole_characters, whole_json

MAX_TOOL_CHARACTERS = 262_144  # of all together, as JSON
MAX_METADATA = 16  # entries
MetadataKey = Annotated[str, Field(max_length=64), AfterValidator(whole_characters)]
MetadataValue = Annotated[str, Field(max_length=512), AfterValidator(whole_characters)]
LOGPROBS = "message.output_text.logprobs"  # what `include` has where they are asked for
NOTHING_IS_KEPT = "no response is kept here; send the whole conversation in input (AI SDK: with store: false)"
# Fields that change an answer and that we do not do, with what to do instead.
UNSUPPORTED = {
    "previous_response_id": NOTHING_IS_KEPT,
    "conversation": NOTHING_IS_KEPT,
    "background": "answers are not made in the background here; leave it out",
    "prompt": "no prompts are kept here; send instructions and input",
    "n": "there is one answer; leave it out, or send several requests",
    "best_of": "there is one answer; leave it out",
    "response_format": "send it as text.format",
    "max_completion_tokens": "send max_output_tokens",
    "logprobs": "send top_logprobs",
}


def _whole(schema: dict[str, Any]) -> dict[str, Any]:
    """Refuse half a surrogate pair, which could not go back with the answer."""
    whole_json(schema)
    return schema


def _whole_and_short(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Refuse what could not go back with the answer, or would take long to."""
    characters = len(whole_json(tools))
    if characters > MAX_TOOL_CHARACTERS:
        raise PydanticCustomError(
            "too_long",
            "tools have {found} characters; the limit is {most}",
            {"found": characters, "most": MAX_TOOL_CHARACTERS},
        )
    return tools


class TextFormat(NullsLeftOut):
    """Any text, any JSON object, or JSON that a schema describes, which is kept whether or not it is `strict`."""

    model_config = ConfigDict(serialize_by_alias=True)

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: Text = "answer"
    description: Text | None = None
    schema_: Annotated[dict[str, Any], AfterValidator(_whole)] | None = Field(None, alias="schema")
    strict: bool | None = None

    def grammar(self) -> Grammar | None:
        """Return it in the task's words, none for any text; raises `InvalidRequest`."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return Grammar(json_schema={"type": "object"})
        if self.schema_ is None:
            raise InvalidRequest("text.format has the type json_schema, but no schema", "text")
        return Grammar(json_schema=self.schema_)

    def told(self) -> dict[str, Any]:
        """Return it as it goes back with the answer."""
        return self.model_dump(exclude_none=True) if self.type == "json_schema" else {"type": self.type}


class TextConfig(NullsLeftOut):
    """How the text has to be."""

    format: TextFormat = TextFormat()
    verbosity: Literal["medium"] | None = Field(None, description="models here know of no other")


class ResponsesRequest(ConversationRequest):
    """A conversation to continue. Nothing is kept: each request has all of it."""

    form_name: ClassVar = "text.format"

    input: Text | InputItems = Field(
        description="a text, or messages, calls of tools, what these have answered, and what the model thought"
    )
    instructions: Text | None = Field(None, description="a system message before the conversation")
    max_output_tokens: int | None = Field(
        None, ge=1, le=MAX_INT32, description="another name of max_tokens, which it overrides"
    )
    text: TextConfig = TextConfig()
    tools: Annotated[
        list[dict[str, Any]], Field(max_length=MAX_TOOLS, fail_fast=True), AfterValidator(_whole_and_short)
    ] = Field([], description="functions that the model may call, each {type: function, name, parameters}")
    tool_choice: ToolChosen = Field(
        "auto", description="whether the model calls tools: none, as it likes, some, the one of a name, or some of them"
    )
    parallel_tool_calls: bool = Field(True, description="whether it may call several at once")
    include: Annotated[list[str], Field(max_length=64, fail_fast=True)] = Field(
        [], description=f"{LOGPROBS} asks for each token's log probability; others are passed over"
    )
    top_logprobs: int | None = Field(None, ge=0, le=20, description="likeliest tokens to report at each place")
    metadata: Annotated[dict[MetadataKey, MetadataValue], few_entries(MAX_METADATA)] = Field(
        {}, description="goes back with the answer"
    )

    @property
    def form(self) -> TextFormat | None:
        """The form that the text is said to have."""
        return None if self.text.format.type == "text" else self.text.format

    @field_validator("input", mode="before")
    @classmethod
    def _refers_to_nothing(cls, value: Any) -> Any:
        items = value if isinstance(value, list) else []
        if any(isinstance(item, dict) and _is_reference(item) for item in items):
            raise PydanticCustomError("kept", f"an item_reference cannot be read: {NOTHING_IS_KEPT}")
        return value

    def names(self) -> dict[str, str]:
        """Return what this client calls fields of the task's request, where it has sent these."""
        tokens = {} if self.max_output_tokens is None else {"max_tokens": "max_output_tokens"}
        logprobs = {"logprobs": self.logprobs_name} if self.has_logprobs else {}
        return {**super().names(), **tokens, **logprobs, "messages": "input"}

    def check_refused(self) -> None:
        """Refuse fields that ask for what is not done here; raises `InvalidRequest`."""
        super().check_refused()
        sent = {**(self.model_extra or {}), "n": self.n > 1, "best_of": self.best_of not in (None, 1)}
        for name, remedy in UNSUPPORTED.items():
            if sent.get(name):
                raise InvalidRequest(f"{name} is not supported: {remedy}", name)

    @property
    def has_logprobs(self) -> bool:
        """Whether tokens come with their log probabilities."""
        return self.top_logprobs is not None or LOGPROBS in self.include

    @property
    def logprobs_name(self) -> str:
        """The field that asks for log probabilities."""
        return "include" if self.top_logprobs is None else "top_logprobs"

    @property
    def tools_told_of(self) -> list[dict[str, Any]]:
        """The tools that the model is told of, as they were sent; raises `InvalidRequest`."""
        if self.tool_choice == "none":
            return []
        if not isinstance(self.tool_choice, AllowedTools):
            return self.tools
        return self.tool_choice.of(self.tools, lambda tool: _nested(tool)["function"].get("name"))

    def told_choice(self) -> Any:
        """Return `tool_choice` as it goes back with the answer."""
        if isinstance(self.tool_choice, str):
            return self.tool_choice
        kind = {} if isinstance(self.tool_choice, AllowedTools) else {"type": "function"}
        return {**kind, **self.tool_choice.model_dump()}

    def task_request(self) -> GenerateRequest:
        """Return it in the task's words; raises `InvalidRequest`."""
        tools = [_nested(tool) for tool in self.tools_told_of]
        choice = self.tool_choice.mode if isinstance(self.tool_choice, AllowedTools) else self.tool_choice
        fields: dict[str, Any] = {
            "messages": [*self._instructions(), *messages_of(self.input)],
            "chat_template_kwargs": self.template_values,
            "separate_reasoning": not self.has_logprobs,
            **fields_of_tools(tools, choice, several=self.parallel_tool_calls),
        }
        if self.has_logprobs and tools:
            raise InvalidRequest(
                f"{self.logprobs_name}: calls have no log probabilities; leave out either these or tools",
                self.logprobs_name,
            )
        if self.has_logprobs:
            fields["logprobs"] = self.top_logprobs or 0
        if self.max_output_tokens is not None:
            fields["max_tokens"] = self.max_output_tokens
        return self.native(**fields)

    def _instructions(self) -> list[Message]:
        return [Message(role="system", content=self.instructions)] if self.instructions else []


def _is_reference(item: dict[Any, Any]) -> bool:
    """Whether an item is known by its id alone, whose type need not be sent."""
    is_bare = item.get("type") is None and "id" in item and item.keys() <= {"id", "type"}
    return item.get("type") == "item_reference" or is_bare


def _nested(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool as the chat route has it: what is told of a function is in `function` there."""
    kind = tool.get("type")
    if kind != "function":
        raise InvalidRequest(
            f"tools: one is of type {str(kind)[:32]!r}, which is not run here; send functions, which you run yourself",
            "tools",
        )
    if isinstance(tool.get("function"), dict):
        return tool
    return {"type": kind, "function": {name: value for name, value in tool.items() if name != "type"}}
