"""What clients are told of a model."""

from __future__ import annotations

import asyncio

from model.package import Manifest
from service.api.calls import Tasks
from service.decisions import way_of
from service.errors import ServiceError
from service.schemas import ModelCard, Sizes
from service.tasks.task import Task

PATIENCE_S = 1.0  # with a replica that may not be there: all else of a card is known without it


async def card_of(task: Task, tasks: Tasks) -> ModelCard:
    """Describe a model, and what computes it, if a replica of it answers soon."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            provider = (await task.health()).provider
    except (ServiceError, TimeoutError):
        provider = None
    return _card(task.manifest, tasks.aliases_of(task.manifest.name), provider)


def _card(manifest: Manifest, aliases: list[str], provider: str | None) -> ModelCard:
    return ModelCard(
        id=manifest.name,
        aliases=aliases,
        task=manifest.task,
        tasks=list(manifest.tasks),
        description=manifest.description,
        not_for=manifest.not_for,
        licence=manifest.licence,
        precision=manifest.precision,
        sizes=_sizes(manifest),
        labels=manifest.labels,
        activation=manifest.activation if manifest.labels else None,
        decisions=way_of(manifest),
        zero_shot=manifest.entailment is not None,
        dimensions=manifest.dimensions if manifest.has_vectors else None,
        embedding=manifest.embedding,
        aggregation=manifest.tagging.aggregation if manifest.tagging else None,
        image_size=manifest.image.size if manifest.image else None,
        chat=manifest.chat_template is not None,
        languages=manifest.languages.names if manifest.languages else [],
        directions=manifest.languages.directions if manifest.languages else [],
        max_input_tokens=manifest.longest_input,
        max_positions=manifest.limits.max_positions,
        evaluation=[figure.model_dump() for figure in manifest.evaluation],
        provider=provider,
    )


def _sizes(manifest: Manifest) -> Sizes:
    sizes = manifest.sizes
    return Sizes(
        parameters=manifest.parameters,
        num_encoder_layers=sizes.num_encoder_layers,
        num_decoder_layers=sizes.num_decoder_layers,
        d_model=sizes.d_model,
        num_heads=sizes.attention.num_heads,
        num_kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        d_ff=sizes.feed_forward.d_ff,
        vocab_size=sizes.vocab_size,
    )
