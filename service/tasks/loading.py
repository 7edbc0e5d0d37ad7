"""From a package's folder to its task."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from model.package import Manifest, PackageError, PackageTokenizer, TaskName
from model.package.manifest import TOKENIZER_FILE
from service.decisions import way_of
from service.engine.admission import AdmissionLimits
from service.engine.batcher import Batcher
from service.engine.engine import Engine
from service.engine.observer import Observer
from service.engine.providers import runtime_version
from service.engine.scheduler import SchedulerLimits
from service.engine.session import SessionOptions
from service.metrics import Metrics
from service.models_file import ModelSettings
from service.schemas import (
    AnswerRequest,
    AnyRequest,
    ClassifyRequest,
    DecideRequest,
    EmbedRequest,
    EmbedSparseRequest,
    ExplainRequest,
    FillRequest,
    GenerateRequest,
    RerankRequest,
    SummarizeRequest,
    TagRequest,
    TranslateRequest,
)
from service.settings import Limits
from service.tasks.answer import Answer
from service.tasks.classify import Classify
from service.tasks.decide import Decide
from service.tasks.devices import wants_device, warn_of_precision
from service.tasks.embed import Embed
from service.tasks.embed_sparse import EmbedSparse
from service.tasks.encoder import Answering, Encoder
from service.tasks.explaining.decoding import Explained, ExplainGeneration
from service.tasks.explaining.insights import Insights
from service.tasks.explaining.texts import ExplainText
from service.tasks.explaining.translating import ExplainTranslation
from service.tasks.fill import Fill
from service.tasks.generate import Generate
from service.tasks.grammars import Grammars
from service.tasks.images import ClassifyImages
from service.tasks.kv_budget import check_kv_cache, kv_capacity_bytes, wants_half_cache, warn_of_cache
from service.tasks.likelihood import DecideByLikelihood
from service.tasks.pool import Pool
from service.tasks.rerank import Rerank
from service.tasks.summarize import Summarize
from service.tasks.tag import Tag
from service.tasks.task import ByRequest, LocalTask, Whole, Work
from service.tasks.translate import Translate

EXACT = {"int8", "int8-static"}  # precisions in which a row's answer does not depend on the other rows

# Of each task that an encoder of texts has: the request, and what answers it.
TASKS_OF_TEXTS: Mapping[TaskName, tuple[type[AnyRequest], Callable[[Encoder], Answering]]] = {
    "classify": (ClassifyRequest, Classify),
    "rerank": (RerankRequest, Rerank),
    "tag": (TagRequest, Tag),
    "answer": (AnswerRequest, Answer),
    "fill": (FillRequest, Fill),
    "embed": (EmbedRequest, Embed),
    "embed_sparse": (EmbedSparseRequest, EmbedSparse),
}


def load_task(
    model: ModelSettings, limits: Limits, metrics: Metrics | None = None, application: str | None = None
) -> LocalTask:
    """Open a model package and run it once, so that its first request is as fast as the rest; raises `PackageError`.

    `application` is the one of Serve that it is in, for the metrics; without Serve it is called like the model.
    """
    started = time.monotonic()
    manifest = model.manifest()
    manifest.check_runtime(model.package, runtime_version())
    manifest.check_files(model.package)
    warn_of_precision(model)
    task = _open(model, manifest, limits, metrics.observer(manifest.name) if metrics else None)
    if metrics:
        slots, seconds = 0 if manifest.cache is None else model.max_slots, time.monotonic() - started
        metrics.loaded(manifest, application or manifest.name, slots, seconds)
    return task


def _open(model: ModelSettings, manifest: Manifest, limits: Limits, observer: Observer | None) -> LocalTask:
    folder = model.package
    options = SessionOptions(
        model.threads,
        model.spin_us,
        cuda=wants_device(model),
        gpu_memory_bytes=model.gpu_memory_mib * 2**20 // len(manifest.graphs),
        cpu_fallback=model.cpu_fallback,
        native=model.native,
        half_cache=wants_half_cache(model, manifest),
    )
    admission = AdmissionLimits(model.max_waiting_slots, model.max_waiting_tokens)
    tokenizer, pool = None if manifest.image else _tokenizer(folder, manifest), Pool()
    insights = Insights(folder, manifest)
    if set(manifest.graphs) == {"encoder"}:
        batcher = Batcher(folder, manifest, options, model.batch_tokens, observer, admission, exact=model.exact)
        _check_width(folder, manifest, batcher.width)
        if tokenizer is None:
            images = ClassifyImages(manifest, batcher, pool, model.max_image_pixels)
            work = ByRequest(manifest, {ClassifyRequest: Whole(images.predict)})
        else:
            work = _of_texts(Encoder(manifest, tokenizer, batcher, pool, limits), insights)
        return LocalTask(
            manifest,
            tokenizer,
            batcher,
            pool,
            work,
            stuck_after_s=limits.stuck_after_s,
            other_pools=[insights],
            watched=[insights.pool],
        )
    assert tokenizer is not None, "bug: the manifest says that only classifiers take images"
    check_kv_cache(model, manifest)
    slots = SchedulerLimits(
        max_slots=model.max_slots,
        prefill_tokens=model.prefill_tokens,
        prefix_cache_bytes=model.prefix_cache_mib * 2**20,
        kv_cache_bytes=kv_capacity_bytes(model, manifest),
        has_drafts=model.prompt_lookup and (manifest.precision in EXACT or not model.exact),
    )
    engine = Engine(folder, manifest, options, slots, observer, admission)
    # What was expected before may be otherwise.
    check_kv_cache(model, manifest, is_on_device=engine.provider == "cuda", is_half=engine.has_half_cache)
    warn_of_cache(model, manifest, is_half=engine.has_half_cache)
    trials = Pool("grammars")
    several = _of_decoder(Explained(manifest, tokenizer, engine, insights), pool, trials, limits)
    return LocalTask(
        manifest,
        tokenizer,
        engine,
        pool,
        several,
        stuck_after_s=limits.stuck_after_s,
        other_pools=[trials, insights],
        watched=[insights.pool],  # a trial ends itself
    )


def _of_decoder(explained: Explained, pool: Pool, trials: Pool, limits: Limits) -> ByRequest:
    """Return what a model that writes does with the requests of its tasks; grammars are tried in `trials`."""
    manifest, tokenizer, engine = explained.manifest, explained.tokenizer, explained.engine
    works: dict[type[AnyRequest], Work] = {}
    if way_of(manifest) == "likelihood":
        scoring = Generate(manifest, tokenizer, engine, pool, param="input")
        works[DecideRequest] = Whole(DecideByLikelihood(manifest.name, scoring, limits.max_inputs).predict)
    if "generate" in manifest.tasks:
        generate = Generate(manifest, tokenizer, engine, pool, grammars=Grammars(manifest, tokenizer, trials))
        works[GenerateRequest] = generate
        of_input = Generate(manifest, tokenizer, engine, pool, param="input")
        works[ExplainRequest] = Whole(ExplainGeneration(explained, of_input).predict)
    if "summarize" in manifest.tasks:
        works[SummarizeRequest] = Summarize(manifest, tokenizer, engine, pool)
    if "translate" in manifest.tasks:
        translate = Translate(manifest, tokenizer, engine, pool, limits.max_sentences, explained.insights)
        works[TranslateRequest] = translate
        if manifest.task == "translate":
            works[ExplainRequest] = Whole(ExplainTranslation(explained, translate).predict)
    return ByRequest(manifest, works)


def _of_texts(encoder: Encoder, insights: Insights) -> ByRequest:
    """Return what an encoder of texts does with the requests of its tasks."""
    asked = [TASKS_OF_TEXTS[task] for task in encoder.manifest.tasks]
    if way_of(encoder.manifest) is not None:
        asked.append((DecideRequest, Decide))
    works: dict[type[AnyRequest], Work] = {request: Whole(make(encoder).predict) for request, make in asked}
    works[ExplainRequest] = Whole(ExplainText(encoder, insights).predict)
    return ByRequest(encoder.manifest, works)


def _check_width(folder: Path, manifest: Manifest, width: int) -> None:
    """Refuse a graph that gives other numbers of labels, dimensions or words than the manifest says."""
    others = manifest.vocab_size if manifest.task == "fill" else len(manifest.labels)
    said = manifest.dimensions if manifest.has_vectors else others
    if width != said:
        raise PackageError(
            f"{folder}: the graph gives {width} numbers, but the manifest tells of {said}; export it again"
        )


def _tokenizer(folder: Path, manifest: Manifest) -> PackageTokenizer:
    tokenizer = PackageTokenizer.load(folder / TOKENIZER_FILE, manifest.pair_text)
    if tokenizer.vocab_size > manifest.vocab_size:
        raise PackageError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} ids, but the model knows {manifest.vocab_size}; "
            "remove the added tokens, or resize the model's embedding"
        )
    return tokenizer
