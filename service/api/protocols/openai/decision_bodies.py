"""What `/v1/decisions` takes and gives, as the SDK's `resources/decisions.py` has it (openai 3.54)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from service.api.protocols.openai.answers import DetailedUsage
from service.api.protocols.openai.items import InputItems, Part, Parts, joined
from service.api.protocols.openai.requests import OpenAIRequest
from service.schemas import Option, Response
from service.schemas import Question as NativeQuestion
from service.schemas.decide import MAX_ALL_OPTIONS, MAX_OPTIONS, MAX_QUESTIONS
from service.schemas.request import Text, few_together

MAX_LEVELS = 10
Name = Annotated[Text, Field(min_length=1)]


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


class DecisionsRequest(OpenAIRequest):
    """Questions about one input."""

    model: str | None = Field(None, description="name of the model; if left out, the first that can answer")
    input: Text | InputItems
    questions: Annotated[
        list[Question],
        Field(min_length=1, max_length=MAX_QUESTIONS, fail_fast=True),
        few_together("Questions", "choices", MAX_ALL_OPTIONS, "choices"),
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


class Decisions(Response):
    """An answer to each question, in order."""

    model: str
    answers: list[PredicateAnswer | ChoiceAnswer | ScoreAnswer | RefusalAnswer]
    usage: DetailedUsage
