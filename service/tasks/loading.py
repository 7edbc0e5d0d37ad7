"""From a package's folder to its task."""

from __future__ import annotations

from model.package import Manifest
from service.engine.batcher import BatcherLimits
from service.engine.scheduler import SchedulerLimits
from service.engine.session import SessionOptions
from service.settings import Limits, ModelSettings
from service.tasks.classify import Classify
from service.tasks.generate import Generate
from service.tasks.task import Task
from service.tasks.translate import Translate


def load_task(model: ModelSettings, limits: Limits) -> Task:
    """Open a model package; raises `PackageError`."""
    manifest = Manifest.load(model.package)
    options = SessionOptions(model.threads)
    waiting = {"max_waiting_sequences": model.max_waiting_sequences, "max_waiting_tokens": model.max_waiting_tokens}
    if manifest.task == "classify":
        batcher_limits = BatcherLimits(batch_tokens=model.batch_tokens, **waiting)
        return Classify(model.package, manifest, options, batcher_limits, stuck_after_s=limits.stuck_after_s)
    scheduler_limits = SchedulerLimits(max_slots=model.max_slots, prefill_tokens=model.prefill_tokens, **waiting)
    decoder = Generate if manifest.task == "generate" else Translate
    return decoder(model.package, manifest, options, scheduler_limits, stuck_after_s=limits.stuck_after_s)
