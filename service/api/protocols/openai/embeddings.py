"""`/v1/embeddings`."""

from __future__ import annotations

import base64
from typing import Literal

import numpy as np
from pydantic import Field

from model.package.part import Side
from service.api.calls import Calls
from service.api.protocols.nulls import NotDone
from service.api.protocols.openai.refused import REFUSED_OF_VECTORS, check
from service.api.protocols.openai.requests import OpenAIRequest
from service.errors import InvalidRequest
from service.schemas import EmbedRequest, EmbedResponse, Response
from service.schemas.request import MAX_INT32, TRUNCATION_SIDE, Ids, ListsOfIds, Text, Texts
from service.turns import Turn

EncodingFormat = Literal["float", "base64"]
EXAMPLES = {
    "texts": {"summary": "texts", "value": {"input": ["A man is playing a guitar.", "Somebody makes music."]}},
    "base64": {"summary": "little-endian float32 in base64", "value": {"input": "A man.", "encoding_format": "base64"}},
    "ids": {"summary": "token ids, as /tokenize shows them", "value": {"input": [2, 5, 6, 3]}},
    "dimensions": {"summary": "fewer dimensions", "value": {"input": "A man.", "dimensions": 8}},
}


class EmbeddingsRequest(OpenAIRequest):
    """Texts or token ids to map to vectors."""

    model: str | None = Field(None, description="name of the model; if left out, the first that fits answers")
    input: Text | Texts | Ids | ListsOfIds = Field(
        description="a text, a list of texts, or token ids of one or several, which are taken as they are"
    )
    encoding_format: EncodingFormat = Field("float", description="numbers, or float32 (little-endian) in base64")
    dimensions: int | None = Field(
        None, ge=1, le=MAX_INT32, description="how many of a vector's first numbers to return"
    )
    normalize: bool | None = Field(
        None, description="whether vectors are made 1 long; the model's own choice if left out"
    )
    normalized: bool | None = Field(None, description="another name of normalize")
    prompt_name: Text | None = Field(None, description="one of the model's prompts, which goes before each text")
    prompt: Text | None = Field(None, description="what goes before each text, instead of a prompt of the model's")
    windows: bool = Field(False, description="read texts that are too long in windows, whose vectors are averaged")
    truncate: bool = Field(False, description="cut texts that are too long instead of refusing them")
    truncation_side: Side | None = TRUNCATION_SIDE
    input_type: NotDone = None
    task: NotDone = None
    late_chunking: NotDone = None
    truncate_prompt_tokens: int | None = Field(
        None, ge=-1, le=MAX_INT32, description="the same in vLLM's words: -1, or no less than the model's longest text"
    )

    def check_refused(self) -> None:
        """Refuse fields that ask for other vectors; what asks for other texts changes nothing."""
        check(self.model_extra or {}, REFUSED_OF_VECTORS)


class EmbeddingItem(Response):
    """The vector of one input."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(Response):
    """Counted tokens."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(Response):
    """A vector for each input, in order."""

    object: Literal["list"] = "list"
    data: list[EmbeddingItem]
    model: str
    usage: EmbeddingsUsage


async def embeddings(request: EmbeddingsRequest, calls: Calls) -> Embeddings:
    """Answer a request by the task of embedding."""
    request.check_refused()
    if not (request.model_extra or {}).get("add_special_tokens", True):
        raise InvalidRequest("add_special_tokens is always true here; leave it out", "add_special_tokens")
    native = EmbedRequest.model_construct(
        model=request.model,
        input=request.input,
        dimensions=request.dimensions,
        normalize=request.normalized if request.normalize is None else request.normalize,
        prompt_name=request.prompt_name,
        prompt=request.prompt,
        windows=request.windows,
        truncate=_cuts(request, calls),
        truncation_side=request.truncation_side,
    )
    answer = await calls.answer_as(EmbedResponse, native, "embed")
    data, turn = [], Turn()
    for index, vector in enumerate(answer.embeddings):
        written = vector if request.encoding_format == "float" else _base64(vector)
        data.append(EmbeddingItem.model_construct(index=index, embedding=written))  # nothing is to be checked
        await turn.give()
    tokens = answer.usage.prompt_tokens
    usage = EmbeddingsUsage(prompt_tokens=tokens, total_tokens=tokens)
    return Embeddings.model_construct(data=data, model=answer.model, usage=usage)


def _cuts(request: EmbeddingsRequest, calls: Calls) -> bool:
    """Return whether texts are cut, which is at the model's own length."""
    asked = request.truncate_prompt_tokens
    if asked is None or asked < 0:
        return request.truncate or asked is not None
    longest = calls.find(request.model, "embed").manifest.limits.max_input_tokens
    if asked < longest:
        raise InvalidRequest(
            f"truncate_prompt_tokens is {asked}; texts are cut at the model's own length, {longest}, so send -1",
            "truncate_prompt_tokens",
        )
    return True


def _base64(vector: list[float]) -> str:
    return base64.b64encode(np.array(vector, "<f4").tobytes()).decode()
