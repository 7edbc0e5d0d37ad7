"""Hugging Face's routes: one for each pipeline, and the model's own address, where its task decides."""

# Annotations are made as the routes are, of each pipeline's own body, so they are no strings here.

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import Response, StreamingResponse

from model.package import TaskName
from service.api.answers import json_answer
from service.api.calls import Calls
from service.api.invalid import native
from service.api.observing import observed
from service.api.protocols.huggingface import bodies, decoders, encoders
from service.errors import TooLarge
from service.routing import ROUTES, answers
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
OF_OUTPUTS = ("text-generation", "summarization", "translation")
# Fields that say which pipelines a body is for, as clients of others do not send them.
SIGNS: Mapping[str, tuple[str, ...]] = {
    "source_sentence": ("sentence-similarity",),
    "question": ("question-answering",),
    "candidate_labels": ("zero-shot-classification",),
    "stream": ("text-generation",),
    "details": ("text-generation",),
    "return_full_text": ("text-generation",),
    "max_new_tokens": OF_OUTPUTS,
    "do_sample": OF_OUTPUTS,
    "generate_parameters": ("summarization", "translation"),
    "src_lang": ("translation",),
    "tgt_lang": ("translation",),
    "aggregation_strategy": ("token-classification",),
    "ignore_labels": ("token-classification",),
    "targets": ("fill-mask",),
    "normalize": ("feature-extraction",),
    "prompt_name": ("feature-extraction", "sentence-similarity"),
}
BESIDE = frozenset({"stream", "normalize", "prompt_name"})  # those of them that stand beside the inputs


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
        name = _name(task, request)
        fields = request.model_dump()
        if name == _own(task) and name != "translation":  # of several translators the languages choose
            fields["model"] = task.manifest.name
        return await answered(PIPELINES[name], native(PIPELINES[name].body, **fields))


def _route(pipeline: Pipeline, answered: Callable[[Pipeline, bodies.Body], Awaitable[Response]]) -> Any:
    examples = {"inputs": {"value": dict(pipeline.example)}}

    async def route(request: Annotated[pipeline.body, Body(openapi_examples=examples)]) -> Any:  # type: ignore[name-defined]
        return await answered(pipeline, request)

    route.__doc__ = f"{(pipeline.answer.__doc__ or '').rstrip('.')} (Hugging Face Inference)."
    return route


def _own(task: Task) -> str:
    """Return the pipeline that a model is for."""
    return "image-classification" if task.manifest.image is not None else OWN[task.manifest.task]


def _name(task: Task, request: AnyBody) -> str:
    """Return the pipeline whose body this is: the model's own, unless fields say that it is another's.

    Of those that it may be the first is taken that the model has. If it has none, a model that was asked for by its
    name or address tells so, unless the fields ask for nothing.
    """
    if request.is_image:
        return "image-classification"
    own = _own(task)
    beside = {name: value for name, value in (request.model_extra or {}).items() if name in BESIDE}
    sent = {**(request.inputs if isinstance(request.inputs, dict) else {}), **request.parameters, **beside}
    possible = _possible([name for name, value in sent.items() if value is not None], own)
    for name in possible:
        if answers(task.manifest, ROUTES[f"/pipeline/{name}"]):
            return name
    if observed().address is not None or request.model == task.manifest.name:
        possible = _possible([name for name, value in sent.items() if value], own)
    return possible[0]


def _possible(fields: Iterable[str], own: str) -> list[str]:
    """Return the pipelines that fields may be for: a model's own alone, if it is among them or they say nothing."""
    signs = [SIGNS[name] for name in fields if name in SIGNS]
    possible = [name for name in PIPELINES if signs and all(name in sign for sign in signs)]
    return [own] if not possible or own in possible else possible
