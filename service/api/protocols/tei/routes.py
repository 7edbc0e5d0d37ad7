"""The routes that are Text Embeddings Inference's own; those that it shares are `service.api.shared_routes`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from model.package import TaskName
from service.api.answers import json_answer
from service.api.calls import Calls
from service.api.protocols.tei import answering
from service.api.protocols.tei.schemas import (
    DecodeRequest,
    Info,
    Prediction,
    PredictRequest,
    SimilarityRequest,
    TeiTextsToEmbed,
)
from service.errors import WrongTask

KINDS: tuple[TaskName, ...] = ("embed", "embed_sparse", "classify", "rerank")  # what TEI's models are for
PREDICT_EXAMPLES = {
    "text": {"summary": "a text", "value": {"inputs": "What a wonderful film!"}},
    "pair": {"summary": "a pair of texts", "value": {"inputs": ["A man sleeps.", "A man is asleep."]}},
    "batch": {"summary": "several", "value": {"inputs": [["Boring."], ["What a film!"]], "raw_scores": True}},
}
SIMILARITY_EXAMPLES = {
    "sentences": {
        "summary": "a sentence beside others",
        "value": {
            "inputs": {
                "source_sentence": "A man is playing a guitar.",
                "sentences": ["Someone makes music.", "It rains."],
            }
        },
    }
}


def add_tei_routes(router: APIRouter, calls: Calls) -> None:
    """Add the routes; `GET /info` describes the model that is named, or the first that TEI could serve."""

    @router.post("/predict", response_model=list[Prediction] | list[list[Prediction]])
    async def predict(request: Annotated[PredictRequest, Body(openapi_examples=PREDICT_EXAMPLES)]) -> Any:
        """Label texts or pairs of texts (Text Embeddings Inference)."""
        return await json_answer(await answering.predict(calls, request))

    @router.post("/similarity", response_model=list[float])
    async def similarity(request: Annotated[SimilarityRequest, Body(openapi_examples=SIMILARITY_EXAMPLES)]) -> Any:
        """Compare a sentence with others by the cosines of their vectors (Text Embeddings Inference)."""
        return await json_answer(await answering.similarity(calls, request))

    @router.post("/decode", response_model=list[str])
    async def decode(request: DecodeRequest) -> Any:
        """Return the texts of token ids (Text Embeddings Inference)."""
        return await json_answer(await answering.decode(calls, request))

    @router.post("/embed_all")
    async def embed_all(request: TeiTextsToEmbed) -> list[list[list[float]]]:
        """Refuse, as no package has vectors of single tokens: their graphs pool them (Text Embeddings Inference)."""
        name = calls.find(request.model, "embed").manifest.name
        raise WrongTask(f"model {name!r} has no vectors of single tokens; POST /embed gives one for each text", "model")

    @router.get("/info")
    async def info(model: str | None = None) -> Info:
        """Describe a model as Text Embeddings Inference does: the one that is named, or the first for its tasks."""
        return answering.info(calls.described(model, KINDS).manifest, calls.limits.max_inputs)
