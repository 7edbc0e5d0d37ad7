"""Explanations: what a model saw in a text, and what decided its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from service.schemas.request import MAX_INT32, Request, Response, Text, Usage
from service.schemas.translate import AUTO, MAX_LANGUAGE, WordPair

MAX_ALTERNATIVES = 20
MAX_CHOSEN = 256  # layers or heads that a request names

Pair = tuple[Text, Text]
Chosen = Annotated[list[Annotated[int, Field(ge=0, le=MAX_INT32)]], Field(max_length=MAX_CHOSEN, fail_fast=True)]
Encoding = Literal["lists", "base64"]
Method = Literal["shapley", "leave-one-out"]

EXPLAIN_EXAMPLES = {
    "classify": {
        "summary": "which words decide a label, and one layer's attention",
        "value": {"input": "A warm, funny film with a wonderful cast.", "layers": [0]},
    },
    "vectors": {
        "summary": "the vectors of a text's tokens",
        "value": {"model": "embed", "input": "He sat on the bank of the river.", "vectors": True, "attention": False},
    },
    "generate": {
        "summary": "what a model would have said at each step, behind each layer",
        "value": {"model": "stories", "input": "Once upon a time", "max_tokens": 5, "attention": False},
    },
    "translate": {
        "summary": "which words of a translation come of which",
        "value": {
            "model": "translate",
            "input": "Dan loves ice cream.",
            "source": "en",
            "target": "sv",
            "attention": False,
        },
    },
}


class ExplainRequest(Request):
    """One text to be explained; what is left out of the parts below comes if the model has it, vectors only if asked.

    Layers and heads are counted from 0.
    """

    inputs: ClassVar = "input"

    input: Text | Pair = Field(
        description="a text; a pair [a, b] for a model that reads two; a prompt; or a sentence to translate",
        examples=["A warm, funny film with a wonderful cast."],
    )
    output: Text | None = Field(
        None, description="the continuation or translation to explain; the model's own if left out"
    )
    source: str = Field(AUTO, max_length=MAX_LANGUAGE, description="of a translator: the text's language")
    target: str | None = Field(None, max_length=MAX_LANGUAGE, description="of a translator: the language to go into")
    max_tokens: int = Field(16, ge=1, le=MAX_INT32, description="most tokens of a continuation of the model's own")
    attention: bool | None = Field(None, description="how much each token looks at each, in every layer and head")
    layers: Chosen | None = Field(None, description="of attention and vectors only these; all if left out")
    heads: Chosen | None = Field(None, description="of attention only these; all if left out")
    contributions: bool | None = Field(None, description="of a classifier: what each token adds to a label's log odds")
    label: Text | None = Field(None, description="that label; the model's first choice if left out")
    method: Method = Field(
        "shapley",
        description="shapley: what a token adds, on average over orders in which tokens are taken away; leave-one-out: "
        "what is lost without it alone, which is faster and less faithful",
    )
    steps: bool | None = Field(None, description="of what decodes: the likeliest tokens at each step, and by layer")
    alternatives: int = Field(5, ge=1, le=MAX_ALTERNATIVES, description="tokens to show at each step, likeliest first")
    alignment: bool | None = Field(None, description="of a translator: which words correspond")
    vectors: bool | None = Field(None, description="hidden states of each token: embeddings, then behind each layer")
    encoding: Encoding = Field(
        "lists", description="of attention and vectors; base64: float16, little-endian, in the order of the shape"
    )
    digits: int = Field(4, ge=1, le=6, description="behind the point, in lists")

    def count_inputs(self) -> int:
        """Return how many answers it asks for."""
        return 1


@dataclass(frozen=True, slots=True)
class ExplainedToken:
    """A token, and the characters [start, end) of its text that it stands for; one that is added stands for none."""

    id: int
    token: str
    start: int
    end: int
    special: bool
    part: int  # of a pair: 0 or 1


class Numbers(Response):
    """An array: its shape, and its numbers as nested lists or in base64."""

    shape: list[int]
    values: list[Any] | str


class AttentionMaps(Numbers):
    """Attention weights, (layers, heads, tokens that look, tokens looked at); those of a row add up to 1."""

    layers: list[int]
    heads: list[int]


class Attention(Response):
    """The attention of each part of a model: within a source or text, within an output, from output to source.

    A decoder looks from each of `tokens` and of `output_tokens`; where there is a source, of `output_tokens` alone.
    """

    encoder: AttentionMaps | None = None
    decoder: AttentionMaps | None = None
    cross: AttentionMaps | None = None


class Vectors(Response):
    """Hidden states, (layers, tokens, width). Layer 0 are embeddings; the last is behind the closing norm."""

    encoder: Numbers | None = None
    decoder: Numbers | None = None


class Contributions(Response):
    """What each token adds to the log odds of a label; with shapley they add up to `log_odds` − `without`."""

    label: str
    score: float
    method: Method
    log_odds: float = Field(description="of the label, of the whole text; of a regression its number")
    without: float = Field(description="the same of a text without any of its tokens")
    values: list[float] = Field(description="one for each token; 0 for special ones")


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that might have come."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class Depth:
    """What the model would say if it ended behind a layer; 0 are the embeddings (logit lens)."""

    layer: int
    best: Alternative
    probability: float  # of the token that came
    rank: int  # of the token that came: 0 is the likeliest
    entropy: float


class Step(Response):
    """One token of an output."""

    id: int
    text: str
    probability: float
    rank: int = Field(description="0: it was the likeliest")
    entropy: float = Field(description="of all tokens' probabilities, in nats")
    alternatives: list[Alternative]
    depths: list[Depth]
    appears: int | None = Field(
        None, description="the layer from which on this token stays the likeliest; none if it is not so at the end"
    )


class ExplainResponse(Response):
    """What was asked for of one text."""

    model: str
    task: str
    tokens: list[ExplainedToken] = Field(description="of the text, with those that stand before and behind it")
    output: str | None = Field(None, description="the continuation or translation")
    output_tokens: list[ExplainedToken] | None = Field(
        None,
        description="of the output; where it has a source the start first, and not the end, from which none follows",
    )
    attention: Attention | None = None
    contributions: Contributions | None = None
    steps: list[Step] | None = None
    alignment: list[WordPair] | None = None
    vectors: Vectors | None = None
    usage: Usage = Field(description="of the text, and of all that was read for contributions")
