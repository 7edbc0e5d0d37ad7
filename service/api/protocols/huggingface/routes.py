"""Hugging Face's routes: one for each pipeline, and the model's own address, where its task decides."""

# Annotations are made as the routes are, of each pipeline's own body, so they are no strings here.

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body
from starlette.responses import Response, StreamingResponse

from service.api.answers import json_answer
from service.api.calls import Calls
from service.api.invalid import native
from service.api.protocols.huggingface import bodies, decoders, encoders
from service.api.protocols.huggingface.choosing import AnyBody, own_pipeline, pipeline_of

TEXT = {"inputs": "The dog was good."}
EMMA = {"question": "Where does Emma live?", "context": "Emma lives in Sofia."}
SENTENCES = {"source_sentence": "The dog was good.", "sentences": ["It was a good dog.", "It rains."]}
LABELS = {"candidate_labels": ["animals", "politics"]}
SWEDISH = {"src_lang": "en", "tgt_lang": "sv"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


@dataclass(frozen=True)
class Pipeline:
    """The form in which a pipeline is asked, and how it is answered."""

    body: type[bodies.Body]
    answer: Callable[[Calls, Any], Awaitable[Any]]
    example: Mapping[str, Any]


PIPELINES: Mapping[str, Pipeline] = {
    "text-classification": Pipeline(bodies.TextClassification, encoders.text_classification, TEXT),
    "zero-shot-classification": Pipeline(
        bodies.ZeroShotClassification,
        encoders.zero_shot_classification,
        {**TEXT, "parameters": LABELS},
    ),
    "image-classification": Pipeline(bodies.ImageClassification, encoders.image_classification, {"inputs": PIXEL}),
    "feature-extraction": Pipeline(bodies.FeatureExtraction, encoders.feature_extraction, TEXT),
    "sentence-similarity": Pipeline(bodies.SentenceSimilarity, encoders.sentence_similarity, {"inputs": SENTENCES}),
    "token-classification": Pipeline(bodies.TokenClassification, encoders.token_classification, TEXT),
    "question-answering": Pipeline(bodies.QuestionAnswering, encoders.question_answering, {"inputs": EMMA}),
    "fill-mask": Pipeline(bodies.FillMask, encoders.fill_mask, {"inputs": "The dog was [MASK]."}),
    "text-generation": Pipeline(bodies.TextGeneration, decoders.text_generation, TEXT),
    "summarization": Pipeline(bodies.Summarization, decoders.summarization, TEXT),
    "translation": Pipeline(bodies.Translation, decoders.translation, {**TEXT, "parameters": SWEDISH}),
}


def add_huggingface_routes(router: APIRouter, calls: Calls, keep_alive_s: float) -> None:
    """Add the routes."""

    async def answered(pipeline: Pipeline, request: bodies.Body) -> Response:
        if isinstance(request, bodies.TextGeneration) and request.stream:
            return await decoders.streamed(calls, request, keep_alive_s)
        answer = await pipeline.answer(calls, request)
        return await json_answer(answer)

    for name, pipeline in PIPELINES.items():
        router.post(f"/pipeline/{name}", name=name, response_model=Any)(_route(pipeline, answered))

    @router.post("/generate_stream", response_class=StreamingResponse)
    async def generate_stream(
        request: Annotated[bodies.TextGeneration, Body(openapi_examples={"prompt": {"value": TEXT}})],
    ) -> Any:
        """Continue a prompt, in server-sent events (Text Generation Inference)."""
        return await decoders.streamed(calls, request, keep_alive_s)

    @router.post("/", response_model=Any)
    async def own(request: Annotated[AnyBody, Body(openapi_examples={"text": {"value": TEXT}})]) -> Any:
        """Answer by the model's own pipeline, or by the one whose body it is (Hugging Face Inference)."""
        task = calls.find(request.model, "own")
        name = pipeline_of(task, request)
        fields = request.model_dump()
        if name == own_pipeline(task) and name != "translation":  # of several translators the languages choose
            fields["model"] = task.manifest.name
        return await answered(PIPELINES[name], native(PIPELINES[name].body, **fields))


def _route(pipeline: Pipeline, answered: Callable[[Pipeline, bodies.Body], Awaitable[Response]]) -> Any:
    examples = {"inputs": {"value": dict(pipeline.example)}}

    async def route(request: Annotated[pipeline.body, Body(openapi_examples=examples)]) -> Any:  # type: ignore[name-defined]
        return await answered(pipeline, request)

    route.__doc__ = f"{(pipeline.answer.__doc__ or '').rstrip('.')} (Hugging Face Inference)."
    return route
