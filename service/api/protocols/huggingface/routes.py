"""Hugging Face's routes: one for each pipeline, and the model's own address, where its task decides."""

# Annotations are made as the routes are, of each pipeline's own body, so they are no strings here.

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import Response

from model.package import TaskName
from service.api.answers import json_answer
from service.api.calls import Calls
from service.api.invalid import native
from service.api.protocols.huggingface import bodies, decoders, encoders
from service.api.streaming import event_stream
from service.errors import TooLarge
from service.tasks.task import Task

MAX_FIELDS = 256
TEXT = {"inputs": "The dog was good."}
EMMA = {"question": "Where does Emma live?", "context": "Emma lives in Sofia."}
SENTENCES = {"source_sentence": "The dog was good.", "sentences": ["It was a good dog.", "It rains."]}
LABELS = {"candidate_labels": ["animals", "politics"]}
SWEDISH = {"src_lang": "en", "tgt_lang": "sv"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


@dataclass(frozen=True)
class Pipeline:
    """What a pipeline asks of a model, in which form, and how it is answered."""

    kind: TaskName
    body: type[bodies.Body]
    answer: Callable[[Calls, Any], Awaitable[Any]]
    example: Mapping[str, Any]


PIPELINES: Mapping[str, Pipeline] = {
    "text-classification": Pipeline("classify", bodies.TextClassification, encoders.text_classification, TEXT),
    "zero-shot-classification": Pipeline(
        "classify",
        bodies.ZeroShotClassification,
        encoders.zero_shot_classification,
        {**TEXT, "parameters": LABELS},
    ),
    "image-classification": Pipeline(
        "classify", bodies.ImageClassification, encoders.image_classification, {"inputs": PIXEL}
    ),
    "feature-extraction": Pipeline("embed", bodies.FeatureExtraction, encoders.feature_extraction, TEXT),
    "sentence-similarity": Pipeline(
        "embed", bodies.SentenceSimilarity, encoders.sentence_similarity, {"inputs": SENTENCES}
    ),
    "token-classification": Pipeline("tag", bodies.TokenClassification, encoders.token_classification, TEXT),
    "question-answering": Pipeline("answer", bodies.QuestionAnswering, encoders.question_answering, {"inputs": EMMA}),
    "fill-mask": Pipeline("fill", bodies.FillMask, encoders.fill_mask, {"inputs": "The dog was [MASK]."}),
    "text-generation": Pipeline("generate", bodies.TextGeneration, decoders.text_generation, TEXT),
    "summarization": Pipeline("summarize", bodies.Summarization, decoders.summarization, TEXT),
    "translation": Pipeline("translate", bodies.Translation, decoders.translation, {**TEXT, "parameters": SWEDISH}),
}
OWN: Mapping[TaskName, str] = {  # the pipeline of a model at its own address, unless the body is another's
    "classify": "text-classification",
    "rerank": "text-classification",
    "embed": "feature-extraction",
    "tag": "token-classification",
    "answer": "question-answering",
    "fill": "fill-mask",
    "generate": "text-generation",
    "summarize": "summarization",
    "translate": "translation",
}


class AnyBody(bodies.Image):
    """A body of any pipeline: `inputs`, and `parameters`; which pipeline's it is, the model and its fields tell."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    inputs: Any
    parameters: dict[str, Any] = Field({})
    is_image: SkipJsonSchema[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, body: Any) -> Any:
        # They are read twice: here, and as the pipeline's.
        for fields in (body, body.get("parameters")) if isinstance(body, dict) else ():
            if isinstance(fields, dict) and len(fields) > MAX_FIELDS:
                raise TooLarge(f"the body has {len(fields)} fields in one place; the limit is {MAX_FIELDS}", "body")
        return body


def add_huggingface_routes(router: APIRouter, calls: Calls, keep_alive_s: float) -> None:
    """Add the routes."""

    async def answered(pipeline: Pipeline, request: bodies.Body) -> Response:
        if isinstance(request, bodies.TextGeneration) and request.stream:
            return await event_stream(decoders.text_generation_events(calls, request), keep_alive_s)
        answer = await pipeline.answer(calls, request)
        return await json_answer(answer)

    for name, pipeline in PIPELINES.items():
        router.post(f"/pipeline/{name}", name=name, response_model=Any)(_route(pipeline, answered))

    @router.post("/", response_model=Any)
    async def own(request: Annotated[AnyBody, Body(openapi_examples={"text": {"value": TEXT}})]) -> Any:
        """Answer by the model's own pipeline, or by the one whose body it is (Hugging Face Inference)."""
        pipeline = PIPELINES[_name(calls.find(request.model, None), request)]
        return await answered(pipeline, native(pipeline.body, **request.model_dump()))


def _route(pipeline: Pipeline, answered: Callable[[Pipeline, bodies.Body], Awaitable[Response]]) -> Any:
    examples = {"inputs": {"value": dict(pipeline.example)}}

    async def route(request: Annotated[pipeline.body, Body(openapi_examples=examples)]) -> Any:  # type: ignore[name-defined]
        return await answered(pipeline, request)

    route.__doc__ = f"{(pipeline.answer.__doc__ or '').rstrip('.')} (Hugging Face Inference)."
    return route


def _name(task: Task, request: AnyBody) -> str:
    """Return the pipeline whose body this is, for a model."""
    inputs = request.inputs if isinstance(request.inputs, dict) else {}
    if "source_sentence" in inputs:
        return "sentence-similarity"
    if "question" in inputs:
        return "question-answering"
    if "candidate_labels" in request.parameters:
        return "zero-shot-classification"
    takes_images = request.is_image or task.manifest.image is not None
    return "image-classification" if takes_images else OWN[task.manifest.task]
