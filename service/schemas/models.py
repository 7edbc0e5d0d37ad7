"""What models there are, and how they are doing."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from model.package import Activation, Aggregation, Embedding
from service.schemas.decide import Way
from service.schemas.request import Response

PROVIDER = (
    "what computes its graphs: cpu, ONNX Runtime on the processor; cuda, the same on a GPU; openvino, OpenVINO on the "
    "processor; none while no replica answers"
)


class Sizes(Response):
    """How large a model is; the names are those of its configuration."""

    parameters: int | None = Field(None, description="none of a package whose export did not count them")
    num_encoder_layers: int
    num_decoder_layers: int
    d_model: int = Field(description="width of the hidden states: a text of n tokens is n × d_model")
    num_heads: int = Field(description="of queries, in each layer")
    num_kv_heads: int = Field(description="of keys and values, in each layer")
    head_dim: int = Field(description="width of a head")
    d_ff: int = Field(description="width within the feed-forward networks")
    vocab_size: int = Field(description="0 of a model of images")


class ModelCard(Response):
    """What one model is and can do."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(0, description="for clients that need one: packages do not say when they were made")
    aliases: list[str] = Field([], description="further names that requests may have for it")
    owned_by: str = Field("trifold", description="for clients that need one")
    task: str = Field(description="what it is for")
    tasks: list[str] = Field(description="what it answers: that, and what comes with it")
    description: str
    not_for: str
    licence: str
    precision: str
    sizes: Sizes
    labels: list[str]
    activation: Activation | None = Field(None, description="what makes scores of the labels' logits; none: nothing")
    decisions: Way | None = Field(
        None,
        description="how it answers /v1/decisions: by what follows from the text, by its own labels, by relevance, or "
        "by how likely it is to write each answer",
    )
    zero_shot: bool = Field(description="whether it sorts texts into labels of the request")
    dimensions: int | None = Field(None, description="of the vectors of a model for embed or embed_sparse")
    embedding: Embedding | None = Field(None, description="prompts and dimensions of such a model")
    aggregation: Aggregation | None = Field(None, description="how a model for tag joins tokens unless asked otherwise")
    image_size: int | None = Field(None, description="pixels a side, of a model of images; others are resized")
    chat: bool = Field(False, description="whether it has a chat template, so that /generate takes messages")
    languages: list[str] = Field(description="of a translator")
    directions: list[tuple[str, str]] = Field(
        description="source and target languages of a translator; none: from any of its languages to any other"
    )
    max_input_tokens: int
    max_positions: int
    evaluation: list[dict[str, Any]]
    provider: str | None = Field(None, description=PROVIDER)


class ModelList(Response):
    """All models under this address."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class ModelHealth(Response):
    """How one replica of a model is doing."""

    is_progressing: bool = Field(description="idle, or finishing steps")
    is_asleep: bool = Field(False, description="it has no replica while nobody asks; the next request starts one")
    waiting: int = Field(0, description="sequences in the queue")
    queued_tokens: int = Field(0, description="tokens of those")
    slots_used: int = Field(0, description="rows of the KV cache in use")
    provider: str | None = Field(None, description=PROVIDER)


class Status(Response):
    """How the service is doing."""

    status: Literal["ok"] = "ok"
    models: dict[str, ModelHealth] = Field(description="none where keys are needed and none came")
