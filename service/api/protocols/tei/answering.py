"""Requests of Text Embeddings Inference as native ones, and the answers back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from model.package import Activation, Manifest
from service import __version__
from service.api.calls import Calls
from service.api.invalid import naming, native
from service.api.protocols.tei.schemas import (
    DecodeRequest,
    Info,
    Prediction,
    PredictRequest,
    Rank,
    SimilarityParameters,
    SimilarityRequest,
    SimpleToken,
    SparseValue,
    TeiEmbedRequest,
    TeiEmbedSparseRequest,
    TeiRerankRequest,
    TeiTokenizeRequest,
)
from service.errors import EmptyInput
from service.schemas import (
    ClassifyRequest,
    ClassifyResponse,
    DetokenizeRequest,
    DetokenizeResponse,
    EmbedRequest,
    EmbedResponse,
    EmbedSparseRequest,
    EmbedSparseResponse,
    RerankRequest,
    RerankResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from service.tasks.similarity import similarities
from service.tasks.texts import as_list


async def embed(calls: Calls, request: TeiEmbedRequest) -> list[list[float]]:
    """Return a vector for each text."""
    with naming(input="inputs"):
        asked = native(EmbedRequest, **request.native(), normalize=request.normalize, dimensions=request.dimensions)
        answer = await calls.answer_as(EmbedResponse, asked, "embed")
    return answer.embeddings


async def embed_sparse(calls: Calls, request: TeiEmbedSparseRequest) -> Iterator[list[SparseValue]]:
    """Return the words that each text is about."""
    with naming(input="inputs"):
        asked = native(EmbedSparseRequest, **request.native())
        answer = await calls.answer_as(EmbedSparseResponse, asked, "embed_sparse")
    return (
        [SparseValue(index=index, value=value) for index, value in zip(each.indices, each.values, strict=True)]
        for each in answer.embeddings
    )


async def similarity(calls: Calls, request: SimilarityRequest) -> list[float]:
    """Return the cosines of one sentence's vector with those of the others."""
    parameters, given = request.parameters or SimilarityParameters(), request.inputs
    if not given.sentences:
        raise EmptyInput("sentences is empty; send at least one text", "inputs")
    asked = TeiEmbedRequest(
        model=request.model,
        inputs=[given.source_sentence, *given.sentences],
        truncate=parameters.truncate,
        truncation_direction=parameters.truncation_direction,
        prompt_name=parameters.prompt_name,
    )
    vectors = np.array(await embed(calls, asked))
    cosines: list[float] = similarities("cosine", vectors[:1], vectors[1:]).tolist()
    return cosines


async def predict(calls: Calls, request: PredictRequest) -> Iterator[Any]:
    """Return the labels of a text or pair, best first, or those of each one of a list."""
    inputs = request.inputs
    if not inputs and isinstance(inputs, list):
        raise EmptyInput("inputs is empty; send at least one text", "inputs")
    is_one = isinstance(inputs, str) or all(isinstance(each, str) for each in inputs)
    each_one = [[inputs] if isinstance(inputs, str) else inputs] if is_one else inputs
    activation: Activation | None = None
    if request.raw_scores:
        activation = "none"
    elif len(calls.find(request.model, "classify").manifest.labels) == 1:
        activation = "sigmoid"  # as TEI has it, whatever the model's own is
    with naming(input="inputs"):
        asked = native(
            ClassifyRequest,
            model=request.model,
            input=[each[0] if len(each) == 1 else each for each in each_one],
            truncate=request.cuts,
            truncation_side=request.side,
            activation=activation,
        )
        answer = await calls.answer_as(ClassifyResponse, asked, "classify")
    several = (
        [Prediction(score=label.score, label=label.label) for label in result.labels] for result in answer.results
    )
    return iter(next(several)) if is_one else several


async def rerank(calls: Calls, request: TeiRerankRequest) -> list[Rank]:
    """Return the texts' places and scores, best first."""
    is_raw = request.raw_scores or not calls.find(request.model, "rerank").manifest.is_cross_encoder
    with naming(documents="texts"):
        asked = native(
            RerankRequest,
            model=request.model,
            query=request.query,
            documents=request.texts,
            truncate=request.cuts,
            truncation_side=request.side,
            activation="none" if is_raw else "sigmoid",
            return_documents=request.return_text,
        )
        answer = await calls.answer_as(RerankResponse, asked, "rerank")
    return [
        Rank(index=each.index, score=each.relevance_score, text=each.document.text if each.document else None)
        for each in answer.results
    ]


async def tokenize(calls: Calls, request: TeiTokenizeRequest) -> Iterator[list[SimpleToken]]:
    """Return the tokens of each text."""
    if request.inputs == []:
        raise EmptyInput("inputs is empty; send at least one text", "inputs")
    with naming(input="inputs"):
        asked = native(
            TokenizeRequest,
            model=request.model,
            input=request.inputs,
            add_special_tokens=request.add_special_tokens,
        )
        answer = await calls.answer_as(TokenizeResponse, asked, None)
    pairs = zip(as_list(request.inputs), answer.results, strict=True)
    return (
        [
            SimpleToken(id=token.id, text=token.token, special=True, start=None, stop=None)
            if token.special
            else SimpleToken(
                id=token.id, text=text[token.start : token.end], special=False, start=token.start, stop=token.end
            )
            for token in tokens
        ]
        for text, tokens in pairs
    )


async def decode(calls: Calls, request: DecodeRequest) -> list[str]:
    """Return the text of each list of ids."""
    asked = native(
        DetokenizeRequest, model=request.model, ids=request.ids, skip_special_tokens=request.skip_special_tokens
    )
    answer = await calls.answer_as(DetokenizeResponse, asked, None)
    return answer.results


def info(manifest: Manifest, max_inputs: int) -> Info:
    """Describe a model as TEI does."""
    numbered = {str(place): label for place, label in enumerate(manifest.labels)}
    labels = {"id2label": numbered, "label2id": {label: int(place) for place, label in numbered.items()}}
    if manifest.task == "embed":
        kind: dict[str, Any] = {"embedding": {"pooling": manifest.sizes.head.pooling}}
    elif manifest.task == "embed_sparse":
        kind = {"embedding": {"pooling": "splade"}}
    else:
        kind = {"reranker" if manifest.task == "rerank" else "classifier": labels}
    return Info(
        model_id=manifest.name,
        model_dtype=manifest.precision,
        model_type=kind,
        max_input_length=manifest.limits.max_input_tokens,
        max_client_batch_size=max_inputs,
        version=__version__,
    )
