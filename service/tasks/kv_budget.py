"""How much memory a model's KV cache may take, whether that is enough, and in how many bits it keeps a number."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from model.package import Manifest, PackageError
from service.engine.kv_cache import bytes_of_longest, longest_that_fits
from service.engine.native.attention import takes_width
from service.engine.providers import native_library
from service.machine import memory_limit
from service.models_file import ModelSettings, most_replicas
from service.tasks.devices import runs_on_device

logger = logging.getLogger(__name__)

KV_FRACTION = 0.5  # of the memory, for all models' KV caches together; weights, arenas and Ray need the rest
FEWEST_POSITIONS = 4  # what opening a model computes, and one more
UNROUNDED = {"float32", "float16"}  # precisions whose products do not round to integers


def kv_capacity_bytes(model: ModelSettings, manifest: Manifest) -> int:
    """Return how many bytes the KV cache may take: what is set, or the model's share; on a device, what all slots need.

    With `cpu_fallback` the device may be missing, so it is not counted on.
    """
    return _bytes_of_all_slots(model, manifest) if _needs_device(model) else _allowed_bytes(model)


def check_kv_cache(
    model: ModelSettings, manifest: Manifest, *, is_on_device: bool = False, is_half: bool | None = None
) -> None:
    """Refuse a KV cache that holds no sequence of `max_positions`; raises `PackageError`.

    On a device, where the cache is taken whole, all slots have to fit into what is set; with `cpu_fallback` it is known
    to be there only once a session is open. `is_half`: whether the cache has 16 bits, once that is known, too.
    """
    if manifest.limits.max_positions < FEWEST_POSITIONS:
        raise PackageError(
            f"{model.package}: max_positions is {manifest.limits.max_positions}; a model that writes needs "
            f"{FEWEST_POSITIONS} at least"
        )
    if model.kv_cache_dtype == "float32" and manifest.precision == "float16":
        raise PackageError(
            f"{model.package}: kv_cache_dtype is float32, but a package of float16 keeps what it computes with; leave "
            "kv_cache_dtype out, or export the model in another precision"
        )
    if is_on_device or _needs_device(model):
        _check_on_device(model, manifest)
        return
    allowed, is_half = _allowed_bytes(model), _expects_half_cache(model, manifest) if is_half is None else is_half
    needed = bytes_of_longest(manifest, is_half=is_half)
    if needed > allowed:
        most = longest_that_fits(manifest, allowed, is_half=is_half)
        shorter = f", or set max_positions, at most {most}" if most else ""
        raise PackageError(
            f"{model.package}: its KV cache may take {allowed / 2**20:.1f} MiB, but one sequence of max_positions, "
            f"{manifest.limits.max_positions}, needs {needed / 2**20:.1f} MiB; raise kv_cache_mib or memory_share in "
            f"the models file, or the memory of the container{shorter}"
        )


def _check_on_device(model: ModelSettings, manifest: Manifest) -> None:
    needed = _bytes_of_all_slots(model, manifest)
    if model.kv_cache_mib is not None and needed > model.kv_cache_mib * 2**20:
        fitting = model.kv_cache_mib * 2**20 // bytes_of_longest(manifest)
        lower = f"max_slots, at most {fitting}, or max_positions" if fitting else "max_positions"
        raise PackageError(
            f"{model.package}: on a device the KV cache is taken whole, and {model.max_slots} slots of max_positions, "
            f"{manifest.limits.max_positions}, need {needed / 2**20:,.0f} MiB, and kv_cache_mib allows "
            f"{model.kv_cache_mib}; raise it, or set {lower}"
        )


def warn_of_budgets(models: Sequence[ModelSettings]) -> None:
    """Tell in the log of models whose KV caches, in all replicas that there may be, could take more than all memory."""
    allowed = sum(_allowed_bytes(model) * most_replicas(model) for model in models if not _needs_device(model))
    if allowed > memory_limit():
        logger.warning(
            "KV caches may come to %s MiB, with as many replicas as there may be, and there are %s MiB of memory; "
            "lower kv_cache_mib, memory_share or max_replicas in the models file",
            f"{allowed >> 20:,}",
            f"{memory_limit() >> 20:,}",
        )


def fitting_positions(model: ModelSettings, manifest: Manifest) -> int | None:
    """Return how many tokens a decoder's sequence may have for its memory, or None where its `max_positions` fit."""
    if manifest.cache is None or _needs_device(model):
        return None
    allowed, is_half = _allowed_bytes(model), _expects_half_cache(model, manifest)
    if bytes_of_longest(manifest, is_half=is_half) <= allowed:
        return None
    return longest_that_fits(manifest, allowed, is_half=is_half)


def wants_half_cache(model: ModelSettings, manifest: Manifest) -> bool:
    """Tell whether keys and values are to be kept in 16 bits, if our own operator attends to them.

    Unless the models file says which, they are where the products' own rounding is far coarser.
    """
    if model.kv_cache_dtype == "auto":
        return manifest.precision not in UNROUNDED
    return model.kv_cache_dtype == "float16"


def warn_of_cache(model: ModelSettings, manifest: Manifest, *, is_half: bool) -> None:
    """Tell in the log of a model whose cache was to have 16 bits and has 32."""
    assert manifest.cache is not None, "bug: who asks has a cache"
    if model.kv_cache_dtype == "float16" and not is_half and manifest.cache.dtype != "float16":
        logger.warning(
            "%s: keys and values are kept in 32 bits, as our own operator does not attend: see above, or the model has "
            "native: false, or heads of a width that is no multiple of 16",
            manifest.name,
        )


def _expects_half_cache(model: ModelSettings, manifest: Manifest) -> bool:
    """Tell before a session is open whether its cache will have 16 bits, as far as that can be told."""
    assert manifest.cache is not None, "bug: who asks has a cache"
    is_ours = model.native and takes_width(manifest.cache.head_dim)
    return is_ours and wants_half_cache(model, manifest) and native_library() is not None


def _needs_device(model: ModelSettings) -> bool:
    return runs_on_device(model) and not model.cpu_fallback


def _bytes_of_all_slots(model: ModelSettings, manifest: Manifest) -> int:
    return model.max_slots * bytes_of_longest(manifest)


def _allowed_bytes(model: ModelSettings) -> int:
    if model.kv_cache_mib is not None:
        return model.kv_cache_mib * 2**20
    return int(memory_limit() * KV_FRACTION * model.memory_share)
