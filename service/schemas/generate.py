"""Generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NotRequired, Self

from pydantic import Field, model_validator
from typing_extensions import TypedDict

from service.schemas.chat import Messages
from service.schemas.decoding import FinishReason
from service.schemas.request import Ids, ListsOfIds, Response, Text, Texts, Usage, as_lists_of_ids
from service.schemas.sampling import SamplingRequest
from service.schemas.tools import ToolCall, ToolCallPiece, ToolChoice

MAX_TOOLS = 256


GENERATE_EXAMPLES = {
    "prompt": {"summary": "a prompt to continue", "value": {"prompt": "Once upon a time", "max_tokens": 40}},
    "search": {
        "summary": "the best of four beams, without a repeated phrase",
        "value": {"prompt": "The dog", "beam_size": 4, "n": 2, "no_repeat_ngram_size": 3, "max_tokens": 20},
    },
    "json_schema": {
        "summary": "a record, as a JSON schema has it",
        "value": {
            "prompt": "Tom is a boy. Tom is six years old. He has a dog.\n",
            "grammar": {
                "json_schema": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "maxLength": 20},
                        "age": {"type": "integer", "minimum": 0, "maximum": 99},
                        "pet": {"enum": ["dog", "cat", None]},
                    },
                    "required": ["name", "age", "pet"],
                    "additionalProperties": False,
                }
            },
        },
    },
    "choice": {
        "summary": "one of a few answers",
        "value": {"prompt": "The sun is", "grammar": {"choice": [" hot", " cold"]}, "temperature": 0},
    },
    "messages": {
        "summary": "a conversation, for a model with a chat template",
        "value": {"messages": [{"role": "user", "content": "Who is Dan?"}], "max_tokens": 40, "temperature": 0},
    },
}


class GenerateRequest(SamplingRequest):
    """A prompt to continue, or several, or a conversation. Defaults are the package's, and ours where it has none."""

    inputs: ClassVar = "prompt"

    prompt: Text | Ids | Texts | ListsOfIds | None = Field(
        None,
        description="a text, a list of token ids, or a list of either; ids are taken as they are, with no start before",
        examples=["Once upon a time"],
    )
    messages: Messages | None = Field(
        None, description="a conversation in place of a prompt, for a model that has a chat template"
    )
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = Field(
        None, description="functions that the chat template may offer the model"
    )
    tool_choice: ToolChoice | None = Field(
        None,
        description="auto: the model may call tools; required: it must call some; {name}: it must call this one; none: "
        "it is not told of any. Calls come in tool_calls; if left out, they stay in the text as the model writes them",
    )
    parallel_tool_calls: bool = Field(True, description="with tool_choice: whether there may be several calls")
    separate_reasoning: bool = Field(
        False,
        description="return the reasoning of a model that reasons (<think>) in reasoning, not in text; always so with "
        "tool_choice",
    )
    add_generation_prompt: bool = Field(True, description="begin an assistant's message behind the conversation")
    chat_template_kwargs: dict[str, Any] = Field({}, description="more values for the chat template")
    logprobs: int | None = Field(
        None, ge=0, le=20, description="alternatives to report for each token, and for the end of the text"
    )
    echo: bool = Field(False, description="begin each choice with its prompt, and its logprobs with the prompt's")
    truncate: bool = Field(
        False, description="cut the end of a text that is too long, of a model that turns texts into texts"
    )

    @model_validator(mode="after")
    def _without_unused_tools(self) -> Self:
        if self.tool_choice == "none":
            self.tools = self.tool_choice = None
        return self

    @property
    def must_call(self) -> bool:
        """Whether the output has to be calls of tools."""
        return self.tool_choice not in (None, "auto")

    def counted_by(self) -> str:
        """Return the field that says how many choices it asks for."""
        if self.count_inputs() > max(self.n, self.best_of or 1):
            return self.inputs
        return "best_of" if (self.best_of or 1) > self.n else "n"

    def count_inputs(self) -> int:
        """Return how many choices it asks for."""
        choices = max(self.n, self.best_of or 1)
        if self.prompt is None:
            return choices
        ids = self.ids()
        return choices * (super().count_inputs() if ids is None else len(ids))

    def ids(self) -> list[list[int]] | None:
        """Return the prompts if they are token ids, one list or several."""
        return as_lists_of_ids(self.prompt)


class TopLogprob(TypedDict):
    """An alternative at a token's place."""

    # An answer may have a hundred thousand of these. As any objects but dictionaries of plain values they would be the
    # garbage collector's to look at, and everybody would wait while it does.
    id: int
    text: str
    logprob: float
    bytes: NotRequired[tuple[int, ...]]  # of a token that is no whole character, if they are known


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and the likeliest alternatives at its place; nothing stands before a prompt's first token."""

    id: int
    text: str
    top: list[TopLogprob]
    logprob: float | None = None
    bytes: tuple[int, ...] | None = None  # of a token that is no whole character, if they are known


class Choice(Response):
    """One continuation."""

    index: int
    text: str
    finish_reason: FinishReason = Field(
        description="stop: it has ended; length: it was cut at max_tokens, or a call by a stop text; grammar: nothing "
        "that its grammar asks for can follow"
    )
    score: float | None = Field(None, description="of a beam search")
    logprobs: list[TokenLogprob] | None = None
    reasoning: str | None = Field(None, description="with separate_reasoning, which then is not in the text")
    tool_calls: list[ToolCall] | None = Field(None, description="with tool_choice, which then are not in the text")


class GenerateResponse(Response):
    """The choices: `n` for the first prompt, then `n` for the second, and so on."""

    model: str
    choices: list[Choice]
    usage: Usage


class GenerateEvent(Response):
    """A piece of one choice; the last piece has the finish reason."""

    index: int
    text: str
    finish_reason: FinishReason | None = None
    logprobs: list[TokenLogprob] | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallPiece] | None = None
