"""How busy this node is, in a few numbers: for whoever looks once a second and needs no histograms."""

from __future__ import annotations

from collections import Counter, defaultdict

from service.metrics import Reading
from service.routing import ROUTES
from service.schemas import Live, LiveModel

IN_PROGRESS = "trifold_requests_in_progress"
OF_A_MODEL = {
    "trifold_sequences_running": "running",
    "trifold_sequences_waiting": "waiting",
    "trifold_kv_slots_used": "slots_used",
    "trifold_kv_slots": "slots",
    "trifold_prompt_tokens_total": "tokens",
    "trifold_generated_tokens_total": "tokens",
}


def live(reading: Reading, node: str) -> Live:
    """Add up what the metrics say of the present, by model."""
    models: defaultdict[str, Counter[str]] = defaultdict(Counter)
    requests = 0
    for metric in reading.metrics:
        for sample in metric.samples:
            if field := OF_A_MODEL.get(sample.name):
                models[sample.labels["model"]][field] += int(sample.value)
            elif sample.name == IN_PROGRESS and sample.labels["route"] in ROUTES:
                requests += int(sample.value)
    return Live(
        at=reading.at,
        node=node,
        requests=requests,
        models={name: LiveModel(**fields) for name, fields in models.items()},
    )
