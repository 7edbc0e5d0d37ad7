"""What `/v1/decisions` takes and gives, as the SDK's `resources/decisions.py` has it (openai 3.54)."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from service.api.protocols.openai.requests import OpenAIRequest
from service.schemas import Option, Response
from service.schemas import Question as NativeQuestion
from service.schemas.decide import MAX_ALL_OPTIONS, MAX_OPTIONS, MAX_QUESTIONS
from service.schemas.request import Text, whole_characters

MAX_ITEMS, MAX_LEVELS = 4096, 10
Name = Annotated[Text, Field(min_length=1)]


class Part(BaseModel):
    """A part of a text: a text itself, or JSON, which is read as text."""

    type: Literal["input_text", "output_text", "refusal", "input_json"]
    text: Text = ""
    refusal: Text = ""
    data: Any = None

    def as_text(self) -> str:
        """Return what it says."""
        if self.type == "input_json":
            return json.dumps(self.data, ensure_ascii=False)
        return self.refusal if self.type == "refusal" else self.text


def joined(parts: str | list[Part]) -> str:
    """Return a text, or its parts, as one text."""
    return parts if isinstance(parts, str) else "\n".join(part.as_text() for part in parts)


def _whole(parts: str | list[Part]) -> str | list[Part]:
    """Refuse half a surrogate pair in JSON, in which texts are not looked at one by one."""
    if not isinstance(parts, str):
        for part in parts:
            if part.type == "input_json":
                whole_characters(part.as_text())
    return parts


Parts = Annotated[
    Text | Annotated[list[Part], Field(max_length=MAX_ITEMS, fail_fast=True)],
    AfterValidator(_whole),
]


class InputItem(BaseModel):
    """A message, a call of a tool, or what a tool has answered."""

    type: Literal["message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"] = (
        "message"
    )
    role: Literal["user", "developer", "system", "assistant"] = "user"
    content: Parts = ""
    name: Text = ""
    arguments: Text = ""
    input: Text = ""
    output: Parts = ""

    def as_text(self) -> str:
        """Return what it says."""
        match self.type:
            case "message":
                return joined(self.content)
            case "function_call" | "custom_tool_call":
                return f"{self.name}({self.arguments or self.input})"
            case _:
                return joined(self.output)


def _says_something(parts: str | list[Part]) -> str | list[Part]:
    if not joined(parts).strip():
        raise PydanticCustomError("empty", "instructions are empty")
    return parts


class AnyQuestion(BaseModel):
    """What all questions have."""

    name: Text | None = Field(None, description="goes back with the answer")
    instructions: Annotated[Parts, AfterValidator(_says_something)] = Field(
        description="the question, or the statement, in words"
    )


class PredicateQuestion(AnyQuestion):
    """Whether a statement about the input is true."""

    type: Literal["predicate"]

    def native(self) -> NativeQuestion:
        """Return it in the task's words; a classifier may have a label of its name."""
        text = joined(self.instructions)
        return NativeQuestion(options=[Option(text=text, names=[self.name or text, text])])


class ChoiceOption(BaseModel):
    """One of the choices; a text and a boolean are never the same."""

    value: StrictBool | Name
    description: Name | None = None

    def native(self) -> Option:
        """Return it in the task's words."""
        of_truth = {True: ["yes", "true"], False: ["no", "false"]}
        names = of_truth[self.value] if isinstance(self.value, bool) else [self.value]
        return Option(text=self.description or names[0], names=names)


def _unique(choices: list[ChoiceOption]) -> list[ChoiceOption]:
    if len({(type(choice.value), choice.value) for choice in choices}) < len(choices):
        raise PydanticCustomError("not_unique", "each choice must be there once")
    return choices


class ChoiceQuestion(AnyQuestion):
    """Which of the choices is right."""

    type: Literal["choice"]
    choices: Annotated[
        list[ChoiceOption], Field(min_length=2, max_length=MAX_OPTIONS, fail_fast=True), AfterValidator(_unique)
    ]

    def native(self) -> NativeQuestion:
        """Return it in the task's words."""
        options = [choice.native() for choice in self.choices]
        return NativeQuestion(instructions=joined(self.instructions), options=options)


class Level(BaseModel):
    """One of the levels."""

    label: Name
    description: Name | None = None


class ScoreQuestion(AnyQuestion):
    """How much: levels go from the lowest, which is 0, to the highest."""

    type: Literal["score"]
    levels: Annotated[list[Level], Field(min_length=2, max_length=MAX_LEVELS, fail_fast=True)]

    def native(self) -> NativeQuestion:
        """Return it in the task's words."""
        options = [Option(text=level.description or level.label, names=[level.label]) for level in self.levels]
        return NativeQuestion(instructions=joined(self.instructions), options=options)


Question = Annotated[PredicateQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")]


def _few_options(questions: Any) -> Any:
    # Before each is looked at, as that takes time for each.
    if isinstance(questions, list):
        asked = [question for question in questions if isinstance(question, dict)]
        found = sum(len(options) for each in asked if isinstance(options := each.get("choices"), list))
        if found > MAX_ALL_OPTIONS:
            raise PydanticCustomError(
                "too_long",
                "Questions should have at most {most} choices together, not {found}",
                {"most": MAX_ALL_OPTIONS, "found": found},
            )
    return questions


class DecisionsRequest(OpenAIRequest):
    """Questions about one input."""

    model: str | None = Field(None, description="name of the model; if left out, the first that can answer")
    input: Text | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)]
    questions: Annotated[
        list[Question], Field(min_length=1, max_length=MAX_QUESTIONS, fail_fast=True), BeforeValidator(_few_options)
    ]
    truncate: bool = Field(False, description="cut a text that is too long instead of refusing it")

    def text(self) -> str:
        """Return the input as one text; where several speak, each line begins with who does."""
        if isinstance(self.input, str):
            return self.input
        if len(self.input) == 1:
            return self.input[0].as_text()
        speakers = [item.role if item.type == "message" else item.type for item in self.input]
        return "\n".join(f"{speaker}: {item.as_text()}" for speaker, item in zip(speakers, self.input, strict=True))


class Answer(Response):
    """An answer; its name is null where the question has none."""

    name: str | None

    @model_serializer(mode="wrap")
    def _with_name(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {**write(self), "name": self.name}


class PredicateAnswer(Answer):
    """How likely a statement is true."""

    type: Literal["predicate"] = "predicate"
    probability: float


class ChoiceProbability(Response):
    """How likely a choice is right."""

    value: bool | str
    probability: float


class ChoiceAnswer(Answer):
    """The likeliest choice; confidence is 0 where all are as likely, and 1 where it is certain."""

    type: Literal["choice"] = "choice"
    choice: bool | str
    confidence: float
    probabilities: list[ChoiceProbability]


class LevelProbability(Response):
    """How likely a level is."""

    value: int
    label: str
    probability: float


class ScoreAnswer(Answer):
    """The mean of the levels, each by its probability."""

    type: Literal["score"] = "score"
    score: float
    confidence: float
    probabilities: list[LevelProbability]


class RefusalAnswer(Answer):
    """The model cannot answer this question."""

    type: Literal["refusal"] = "refusal"


class InputDetails(Response):
    """Of which nothing is counted here."""

    cache_write_tokens: int = 0
    cached_tokens: int = 0


class OutputDetails(Response):
    """Of which there are none."""

    reasoning_tokens: int = 0


class DecisionsUsage(Response):
    """Counted tokens."""

    input_tokens: int
    input_tokens_details: InputDetails = InputDetails()
    output_tokens: int = 0
    output_tokens_details: OutputDetails = OutputDetails()
    total_tokens: int


class Decisions(Response):
    """An answer to each question, in order."""

    model: str
    answers: list[PredicateAnswer | ChoiceAnswer | ScoreAnswer | RefusalAnswer]
    usage: DecisionsUsage
