"""What a manifest says of an encoder's task."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from model.package.part import Part

Activation = Literal["softmax", "sigmoid", "none"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
Aggregation = Literal["none", "simple", "first", "average", "max"]
MAX_FIXED = 16_384  # characters of each text that stands around others


class Entailment(Part):
    """What a model that tells whether one text follows from another needs to sort texts into any labels (zero-shot).

    Each label becomes a hypothesis, and its score is that of the label `entails`. Yin et al. 2019, "Benchmarking
    Zero-shot Text Classification".
    """

    entails: int = Field(ge=0, description="number of the label that says it does")
    contradicts: int = Field(ge=0, description="number of the label that says the opposite")
    template: str = Field("This example is {}.", pattern=r"\{\}", description="the hypothesis, with {} for a label")

    @model_validator(mode="after")
    def _are_two_labels(self) -> Self:
        if self.entails == self.contradicts:
            raise ValueError(f"entails and contradicts are both {self.entails}; they are two labels")
        return self


class Embedding(Part):
    """How a model for embed is used. Its vectors are made by the graph, pooling included."""

    normalize: bool = Field(True, description="whether vectors are made 1 long unless a request says otherwise")
    matryoshka: list[Annotated[int, Field(ge=1)]] = Field(
        [], description="fewer dimensions that it was trained for; none named: unknown"
    )
    similarity: Similarity | None = Field(
        None,
        description="how two vectors are compared (euclidean, manhattan: negative distances); none: by cosine, or by "
        "dot if they are sparse",
    )
    max_words: int | None = Field(
        None,
        ge=1,
        strict=True,
        description="the heaviest words of a sparse vector that are kept unless a request says otherwise",
    )
    prompts: dict[str, str] = Field({}, description="name → text that goes before each input, as 'query: '")
    default_prompt: str | None = Field(None, description="name of the prompt that is used unless a request names one")

    @model_validator(mode="after")
    def _knows_its_default(self) -> Self:
        if self.default_prompt is not None and self.default_prompt not in self.prompts:
            raise ValueError(f"default_prompt is {self.default_prompt!r}; prompts has {sorted(self.prompts)}")
        return self

    def prompt(self, *names: str) -> str:
        """Return the first of these prompts that there is, or else the default one; empty if there is none."""
        name = next((name for name in names if name in self.prompts), self.default_prompt)
        return "" if name is None else self.prompts[name]


class Tagging(Part):
    """How the tags of tokens become entities, unless a request says otherwise."""

    aggregation: Aggregation = Field("simple", description="how the tokens of a word agree on its tag")


class PairText(Part):
    """How a model reads two texts as one, as decoders do that are asked whether a document answers a query."""

    before: str = Field("", max_length=MAX_FIXED, description="what stands before the first text")
    between: str = Field("", max_length=MAX_FIXED, description="what stands behind it, before the second")
    after: str = Field("", max_length=MAX_FIXED, description="what stands behind the second")
    strips: bool = Field(False, description="whether both texts lose the white space at their ends")

    @property
    def fixed_characters(self) -> int:
        """How many characters stand around the texts."""
        return len(self.before) + len(self.between) + len(self.after)

    def of(self, first: str, second: str) -> str:
        """Return the text that is read."""
        if self.strips:
            first, second = first.strip(), second.strip()
        return f"{self.before}{first}{self.between}{second}{self.after}"
