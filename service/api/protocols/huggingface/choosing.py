"""Whose body it is that comes to a model's own address, or to the service's: its fields tell the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from model.package import TaskName
from service.api.observing import observed
from service.api.protocols.huggingface.bodies import IN_BASE64, Image
from service.errors import TooLarge
from service.routing import ROUTES, answers
from service.tasks.task import Task

MAX_FIELDS = 256
OWN: Mapping[TaskName, str] = {  # the pipeline of a model at its own address, unless the body is another's
    "classify": "text-classification",
    "rerank": "text-classification",
    "embed": "feature-extraction",
    "embed_sparse": "feature-extraction",  # which tells that it is for other vectors
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


class AnyBody(Image):
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


def own_pipeline(task: Task) -> str:
    """Return the pipeline that a model is for."""
    return "image-classification" if task.manifest.image is not None else OWN[task.manifest.task]


def pipeline_of(task: Task, request: AnyBody) -> str:
    """Return the pipeline whose body this is: the model's own, unless fields say that it is another's.

    Of those that it may be the first is taken that the model has. If it has none, a model that was asked for by its
    name or address tells so, unless the fields ask for nothing.
    """
    own = own_pipeline(task)
    is_for_one = observed().address is not None or request.model == task.manifest.name
    if request.is_image or (not is_for_one and _is_image(request.inputs)):
        return "image-classification"
    beside = {name: value for name, value in (request.model_extra or {}).items() if name in BESIDE}
    sent = {**(request.inputs if isinstance(request.inputs, dict) else {}), **request.parameters, **beside}
    possible = _possible([name for name, value in sent.items() if value is not None], own)
    for name in possible:
        if answers(task.manifest, ROUTES[f"/pipeline/{name}"]):
            return name
    if is_for_one:
        possible = _possible([name for name, value in sent.items() if value], own)
    return possible[0]


def _is_image(inputs: object) -> bool:
    """Tell whether inputs are an image in base64, as Hugging Face's client sends it with parameters."""
    return isinstance(inputs, str) and inputs.startswith(IN_BASE64)


def _possible(fields: Iterable[str], own: str) -> list[str]:
    """Return the pipelines that fields may be for: a model's own alone, if it is among them or they say nothing."""
    first, *others = [SIGNS[name] for name in fields if name in SIGNS] or [()]
    possible = [name for name in first if all(name in other for other in others)]
    return [own] if not possible or own in possible else possible
