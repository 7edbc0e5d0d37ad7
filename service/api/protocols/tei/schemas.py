"""Bodies and answers of Text Embeddings Inference 1.9.3 (huggingface/text-embeddings-inference, router/src/http)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from model.package.part import Side
from service.api.protocols.nulls import NotDone, NullsLeftOut
from service.schemas.classify import Pair
from service.schemas.request import MAX_INT32, Ids, ListsOfIds, Text, Texts
from service.schemas.rerank import MAX_DOCUMENTS

MODEL = Field(None, description="name of the model; if left out, the first that fits answers")
TRUNCATE = Field(None, description="whether texts that are too long are cut; true if left out, as in TEI since 2026")
Direction = Literal["Left", "left", "Right", "right"]
DIRECTION: Direction | None = Field(
    None,
    description="whether texts that are too long lose their beginnings or ends; as the model's files say if left out",
)
PROMPT_NAME = Field(None, description="one of the model's prompts, which goes before each text")
RAW_SCORES = Field(False, description="the model's numbers instead of scores")


def side_of(direction: Direction | None) -> Side | None:
    """Return which side of texts is cut; none where that is left to the model's own files."""
    if direction is None:
        return None
    return "left" if direction in {"Left", "left"} else "right"


Single = Annotated[list[Text], Field(min_length=1, max_length=1)]


class TeiRequest(NullsLeftOut):
    """What TEI's bodies have in common; unknown fields are ignored, as there."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    model: str | None = MODEL


class TruncatedRequest(TeiRequest):
    """A request whose texts may be too long."""

    truncate: bool | None = TRUNCATE
    truncation_direction: Direction | None = DIRECTION

    @property
    def cuts(self) -> bool:
        """Whether texts that are too long are cut."""
        return self.truncate is not False

    @property
    def side(self) -> Side | None:
        """What is cut; none: what the model's own files say."""
        return side_of(self.truncation_direction) if self.cuts else None


class TeiTextsToEmbed(TruncatedRequest):
    """Texts to map to vectors, dense or sparse, or to one for each token."""

    inputs: Text | Texts | Ids | ListsOfIds = Field(
        description="a text, a list of token ids, or a list of either", examples=["What is Deep Learning?"]
    )
    prompt_name: Text | None = PROMPT_NAME
    prompt: NotDone = None
    windows: NotDone = None

    def native(self) -> dict[str, Any]:
        """Return the same as fields of our own request."""
        fields = {"truncate": self.cuts, "truncation_side": self.side, "prompt_name": self.prompt_name}
        return {"model": self.model, "input": self.inputs, **fields}


class TeiEmbedRequest(TeiTextsToEmbed):
    """Texts to map to vectors."""

    normalize: bool = Field(True, description="whether vectors are made 1 long")
    dimensions: int | None = Field(
        None, ge=1, le=MAX_INT32, description="how many of the vector's first numbers to return"
    )


class TeiEmbedSparseRequest(TeiTextsToEmbed):
    """Texts to map to vectors over a vocabulary."""


class SparseValue(TypedDict):
    """A word that a text is about, by its id, and how much."""

    index: int
    value: float


class PredictRequest(TruncatedRequest):
    """Texts or pairs to label."""

    inputs: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=2)]
        | Annotated[list[Single | Pair], Field(max_length=MAX_DOCUMENTS, fail_fast=True)]
    ) = Field(
        description="a text, a pair of texts [a, b], or a list of either, each in a list of its own: [[a], [b, c]]",
        examples=["What a wonderful film!"],
    )
    raw_scores: bool = RAW_SCORES


class TeiRerankRequest(TruncatedRequest):
    """A query, and texts to rank by it."""

    query: Text = Field(examples=["What is Deep Learning?"])
    texts: Texts = Field(max_length=MAX_DOCUMENTS, examples=[["Deep Learning is …", "The dog was good."]])
    raw_scores: bool = Field(
        False, description="the model's numbers instead of scores; the similarities of an embedding model are both"
    )
    return_text: bool = Field(False, description="return the texts, too")


class Sentences(BaseModel):
    """A sentence, and those that it is compared with."""

    source_sentence: Text = Field(examples=["The dog was good."])
    sentences: Texts = Field(examples=[["The dog was not bad.", "It rains."]])


class SimilarityParameters(NullsLeftOut):
    """How the sentences are read."""

    truncate: bool | None = TRUNCATE
    truncation_direction: Direction | None = DIRECTION
    prompt_name: Text | None = PROMPT_NAME


class SimilarityRequest(TeiRequest):
    """Sentences to compare by the cosines of their vectors."""

    inputs: Sentences
    parameters: SimilarityParameters | None = None


class TeiTokenizeRequest(TeiRequest):
    """Texts to turn into tokens."""

    inputs: Text | Texts = Field(description="a text, or a list of texts", examples=["What is Deep Learning?"])
    add_special_tokens: bool = Field(True, description="with the tokens that the tokenizer adds")
    prompt_name: None = Field(None, description="not done here: send the prompt with the text")


class DecodeRequest(TeiRequest):
    """Token ids to turn into text."""

    ids: Ids | ListsOfIds = Field(description="token ids of one text, or lists of them", examples=[[5, 6, 7]])
    skip_special_tokens: bool = Field(True, description="leave special tokens out of the text")


class Prediction(TypedDict):
    """A label and its score."""

    score: float
    label: str


class Rank(BaseModel):
    """A text's place in the request, and how well it fits."""

    index: int
    text: str | None = None
    score: float


class SimpleToken(TypedDict):
    """A token, and the characters [start, stop) of the text; those that the tokenizer adds stand for none."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Info(BaseModel):
    """What one model is, and what it may be asked."""

    model_config = ConfigDict(protected_namespaces=())

    model_id: str
    model_sha: str | None = None
    model_dtype: str
    model_type: dict[str, Any]
    max_input_length: int
    max_client_batch_size: int
    auto_truncate: bool = True
    tokenization_workers: int = Field(1, description="one thread of each replica")
    version: str
    sha: str | None = None
    docker_label: str | None = None
