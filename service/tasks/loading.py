"""From a package's folder to its task."""

from __future__ import annotations

import time
from pathlib import Path

from model.package import Manifest, PackageError, PackageTokenizer
from model.package.manifest import TOKENIZER_FILE
from service.engine.admission import AdmissionLimits
from service.engine.batcher import Batcher
from service.engine.engine import Engine
from service.engine.observer import Observer
from service.engine.scheduler import SchedulerLimits
from service.engine.session import SessionOptions
from service.metrics import Metrics
from service.settings import Limits, ModelSettings
from service.tasks.classify import Classify
from service.tasks.embed import Embed
from service.tasks.generate import Generate
from service.tasks.kv_budget import kv_budget
from service.tasks.pool import Pool
from service.tasks.task import LocalTask, Work
from service.tasks.translate import Translate


def load_task(model: ModelSettings, limits: Limits, metrics: Metrics | None = None) -> LocalTask:
    """Open a model package and run it once, so that its first request is as fast as the rest; raises `PackageError`."""
    started = time.monotonic()
    manifest = model.manifest()
    task = _open(model, manifest, limits, metrics.observer(manifest.name) if metrics else None)
    if metrics:
        metrics.loaded(manifest, 0 if manifest.cache is None else model.max_slots, time.monotonic() - started)
    return task


def _open(model: ModelSettings, manifest: Manifest, limits: Limits, observer: Observer | None) -> LocalTask:
    folder = model.package
    options = SessionOptions(
        model.threads,
        model.spin_us,
        cuda=model.num_gpus > 0,
        gpu_memory_bytes=model.gpu_memory_mib * 2**20 // len(manifest.graphs),
        cpu_fallback=model.cpu_fallback,
    )
    admission = AdmissionLimits(model.max_waiting_slots, model.max_waiting_tokens)
    tokenizer, pool = None if manifest.image else _tokenizer(folder, manifest), Pool()
    if manifest.task in {"classify", "embed"}:
        batcher = Batcher(folder, manifest, options, model.batch_tokens, observer, admission)
        work: Classify | Embed = Embed(manifest, tokenizer, batcher, pool)
        if manifest.task == "classify":
            work = Classify(manifest, tokenizer, batcher, pool, model.max_image_pixels)
        return LocalTask(manifest, tokenizer, batcher, pool, work, stuck_after_s=limits.stuck_after_s)
    assert tokenizer is not None, "bug: the manifest says that only classifiers take images"
    slots = SchedulerLimits(
        max_slots=model.max_slots,
        prefill_tokens=model.prefill_tokens,
        prefix_cache_bytes=model.prefix_cache_mib * 2**20,
        kv_cache_bytes=kv_budget(model, manifest),
    )
    engine = Engine(folder, manifest, options, slots, observer, admission)
    if manifest.task == "generate":
        decoder: Work = Generate(manifest, tokenizer, engine, pool)
    else:
        decoder = Translate(manifest, tokenizer, engine, pool, limits.max_sentences)
    return LocalTask(manifest, tokenizer, engine, pool, decoder, stuck_after_s=limits.stuck_after_s)


def _tokenizer(folder: Path, manifest: Manifest) -> PackageTokenizer:
    tokenizer = PackageTokenizer.load(folder / TOKENIZER_FILE)
    if tokenizer.vocab_size > manifest.vocab_size:
        raise PackageError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} ids, but the model knows {manifest.vocab_size}; "
            "remove the added tokens, or resize the model's embedding"
        )
    return tokenizer
