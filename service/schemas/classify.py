"""Classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from model.package import Activation
from service.schemas.request import MAX_INT32, LongTexts, Response, Text, Texts, Usage

Pair = tuple[Text, Text]
Inputs = Annotated[list[Text | Pair], Field(fail_fast=True)]


class ClassifyRequest(LongTexts):
    """Texts or images to classify, into the model's labels or into any (zero-shot)."""

    inputs: ClassVar = "input"

    input: Text | Inputs = Field(
        description="a text, or a list of texts and of pairs [a, b]; for a model of images, each image's bytes "
        "in base64, or as a data URL",
        examples=["What a wonderful film!"],
    )
    top_k: int | None = Field(None, ge=1, le=MAX_INT32, description="labels to return, best first; all if left out")
    activation: Activation | None = Field(
        None, description="what makes scores of the model's numbers; none leaves them raw; the model's own if left out"
    )
    labels: Texts | None = Field(
        None, description="labels of your own, for a model that tells whether one text follows from another"
    )
    hypothesis_template: Text | None = Field(
        None, description="what such a model is asked of each label, which takes the place of {}"
    )
    multi_label: bool = Field(False, description="with labels: each is true or not, whatever the others are")


CLASSIFY_EXAMPLES = {
    "texts": {"summary": "texts", "value": {"input": ["What a wonderful film!", "Boring."], "top_k": 1}},
    "pairs": {"summary": "pairs of texts", "value": {"input": [["A man sleeps.", "A man is asleep."]]}},
    "windows": {"summary": "a long text, read in windows", "value": {"input": "A long story. " * 8, "windows": True}},
    "labels": {
        "summary": "labels of your own (zero-shot)",
        "value": {
            "input": "The match was decided in the last minute.",
            "labels": ["sport", "politics", "weather"],
            "hypothesis_template": "This text is about {}.",
        },
    },
}


@dataclass(frozen=True, slots=True)
class Label:
    """A label and its score: 0 to 1, and of all labels 1 in sum (softmax); each 0 to 1 (sigmoid); or any number."""

    label: str
    score: float


class Classification(Response):
    """The labels of one input, best first."""

    labels: list[Label]


class ClassifyResponse(Response):
    """One classification for each input."""

    model: str
    results: list[Classification]
    usage: Usage
