"""Pipelines over encoders: Hugging Face's bodies as native requests, and the answers back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from model.package import TaskName
from service.api.calls import Calls
from service.api.invalid import naming, native
from service.api.protocols.huggingface.bodies import (
    FeatureExtraction,
    FillMask,
    ImageClassification,
    QuestionAnswering,
    SentenceSimilarity,
    TextClassification,
    TextPair,
    TokenClassification,
    ZeroShotClassification,
)
from service.api.protocols.lengths import check_length
from service.api.protocols.tei import answering as tei
from service.api.protocols.tei.schemas import Sentences, SimilarityParameters, SimilarityRequest, side_of
from service.schemas import (
    AnswerRequest,
    AnswerResponse,
    Candidate,
    Classification,
    ClassifyRequest,
    ClassifyResponse,
    EmbedRequest,
    EmbedResponse,
    Entity,
    FillRequest,
    FillResponse,
    Mask,
    TagRequest,
    TagResponse,
)
from service.tasks.texts import as_list, check_copies


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value; the native request has its own for the others."""
    return {name: value for name, value in fields.items() if value is not None}


async def text_classification(calls: Calls, body: TextClassification) -> Any:
    """Return the labels of each text, best first: a list of lists, of a single text, too."""
    inputs = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    texts = [[each.text, each.text_pair] if isinstance(each, TextPair) else each for each in inputs]
    parameters = body.parameters
    asked = given(top_k=parameters.top_k, activation=parameters.function_to_apply, truncate=parameters.truncation)
    _check_length(calls, body, "classify")
    return map(_labels, (await _classified(calls, body.model, input=texts, **asked)).results)


async def image_classification(calls: Calls, body: ImageClassification) -> Any:
    """Return the labels of an image, best first."""
    asked = given(top_k=body.parameters.top_k, activation=body.parameters.function_to_apply)
    model = calls.find(body.model, "image").manifest.name
    return _labels((await _classified(calls, model, input=body.inputs, **asked)).results[0])


async def zero_shot_classification(calls: Calls, body: ZeroShotClassification) -> Any:
    """Return the scores of the request's own labels, best first, for each text."""
    labels = body.parameters.candidate_labels
    asked = given(
        labels=[label.strip() for label in labels.split(",") if label.strip()] if isinstance(labels, str) else labels,
        hypothesis_template=body.parameters.hypothesis_template,
        multi_label=body.parameters.multi_label,
        truncate=body.parameters.truncation,
    )
    with naming(labels="candidate_labels"):
        model = calls.find(body.model, "zero-shot").manifest.name
        results = (await _classified(calls, model, input=body.inputs, **asked)).results
    return _labels(results[0]) if isinstance(body.inputs, str) else map(_labels, results)


def _check_length(calls: Calls, body: TextClassification | FillMask, kind: TaskName) -> None:
    """Refuse texts that are to be cut shorter than the model cuts them."""
    if body.parameters.truncation:
        limit = calls.find(body.model, kind).manifest.limits.max_input_tokens
        check_length("max_length", body.parameters.max_length, limit)


async def _classified(calls: Calls, model: str | None, **fields: Any) -> ClassifyResponse:
    with naming(input="inputs"):
        return await calls.answer_as(ClassifyResponse, native(ClassifyRequest, model=model, **fields), "classify")


def _labels(result: Classification) -> list[dict[str, Any]]:
    return [asdict(label) for label in result.labels]


async def feature_extraction(calls: Calls, body: FeatureExtraction) -> Any:
    """Return a text's vector, or that of each one of a list."""
    asked = given(
        normalize=body.normalize,
        prompt_name=body.prompt_name,
        truncate=body.truncate is not False,
        truncation_side=side_of(body.truncation_direction) if body.truncate is not False else None,
        dimensions=body.dimensions,
    )
    with naming(input="inputs"):
        answer = await calls.answer_as(
            EmbedResponse, native(EmbedRequest, model=body.model, input=body.inputs, **asked), "embed"
        )
    return answer.embeddings[0] if isinstance(body.inputs, str) else answer.embeddings


async def sentence_similarity(calls: Calls, body: SentenceSimilarity) -> Any:
    """Return the cosines of one sentence's vector with those of the others."""
    inputs = Sentences(source_sentence=body.inputs.source_sentence, sentences=body.inputs.sentences)
    given_parameters = body.parameters
    parameters = SimilarityParameters(
        truncate=given_parameters.truncate,
        truncation_direction=given_parameters.truncation_direction,
        prompt_name=given_parameters.prompt_name,
    )
    return await tei.similarity(calls, SimilarityRequest(model=body.model, inputs=inputs, parameters=parameters))


async def token_classification(calls: Calls, body: TokenClassification) -> Any:
    """Return the entities of a text, or of each one of a list."""
    parameters, tagging = body.parameters, calls.find(body.model, "tag").manifest.tagging
    aggregation = parameters.aggregation_strategy or (tagging.aggregation if tagging else None)
    asked = given(aggregation=aggregation, ignore_labels=parameters.ignore_labels, overlap=parameters.stride)
    with naming(input="inputs", overlap="stride"):
        answer = await calls.answer_as(
            TagResponse, native(TagRequest, model=body.model, input=body.inputs, **asked), "tag"
        )
    label = "entity" if aggregation == "none" else "entity_group"
    found = ([_entity(entity, label) for entity in entities] for entities in answer.results)
    return next(found) if isinstance(body.inputs, str) else found


def _entity(entity: Entity, label: str) -> dict[str, Any]:
    place = {"word": entity.text, "start": entity.start, "end": entity.end}
    return {label: entity.label, "score": entity.score, **place}


async def question_answering(calls: Calls, body: QuestionAnswering) -> Any:
    """Return the best answer, or a list of them if more than one is asked for."""
    parameters = body.parameters
    asked = given(
        top_k=parameters.top_k,
        max_answer_tokens=parameters.max_answer_len,
        no_answer=parameters.handle_impossible_answer,
        overlap=parameters.doc_stride,
    )
    inputs = {"question": body.inputs.question, "context": body.inputs.context}
    with naming(overlap="doc_stride"):
        answer = await calls.answer_as(
            AnswerResponse, native(AnswerRequest, model=body.model, **inputs, **asked), "answer"
        )
    spans = answer.results[0].answers
    found = [{"answer": span.text, "score": span.score, "start": span.start, "end": span.end} for span in spans]
    if (parameters.top_k or 1) > 1:
        return found
    return found[0] if found else {"answer": "", "score": 0.0, "start": 0, "end": 0}


async def fill_mask(calls: Calls, body: FillMask) -> Any:
    """Return the candidates for a text's missing word, or for each of its words; of a list, for each text."""
    _check_length(calls, body, "fill")
    targets = None if body.parameters.targets is None else as_list(body.parameters.targets)
    asked = native(
        FillRequest,
        model=body.model,
        input=body.inputs,
        truncate=body.parameters.truncation,
        exact_targets=True,  # as transformers looks for them
        **given(top_k=body.parameters.top_k, targets=targets),
    )
    with naming(input="inputs"):
        answer = await calls.answer_as(FillResponse, asked, "fill")
    pairs = list(zip(as_list(body.inputs), answer.results, strict=True))
    check_copies(sum(len(text) * sum(len(mask.candidates) for mask in masks) for text, masks in pairs), "inputs")
    found = (words_of(text, masks) for text, masks in pairs)
    return next(found) if isinstance(body.inputs, str) else found


def words_of(text: str, masks: list[Mask]) -> list[Any]:
    """Return the candidates for a text's missing word, or for each of its words, and the texts that they make."""
    words = [
        [
            {
                "score": candidate.score,
                "token": candidate.id,
                "token_str": candidate.text,
                "sequence": _filled(text[: mask.start], candidate, text[mask.end :]),
            }
            for candidate in mask.candidates
        ]
        for mask in masks
    ]
    return words[0] if len(words) == 1 else words


def _filled(before: str, candidate: Candidate, behind: str) -> str:
    """Return a text with a word in the place of a mask; a word's further piece joins what stands before."""
    word = candidate.text
    if candidate.continues_word:
        return before.rstrip(" ") + word.removeprefix("##") + behind
    return (before.removesuffix(" ") if word.startswith(" ") else before) + word + behind
