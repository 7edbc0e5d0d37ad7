"""How much memory a model's KV cache may take, and whether that is enough."""

from __future__ import annotations

from model.package import Manifest, PackageError
from service.engine.kv_cache import bytes_of_longest, longest_that_fits
from service.engine.machine import kv_cache_bytes, memory_limit
from service.models_file import ModelSettings
from service.tasks.devices import runs_on_device

FEWEST_POSITIONS = 4  # what opening a model computes, and one more


def kv_budget(model: ModelSettings, manifest: Manifest, *, is_on_device: bool = False, may_be_half: bool = True) -> int:
    """Return the KV cache's budget: what is set, or the model's share; raises `PackageError` if no sequence fits.

    On a device, where the cache is taken whole, all slots have to fit into what is set; with `cpu_fallback` it is known
    to be there only once a session is open. `may_be_half`: whether 16 bits, if they are asked for, can be had.
    """
    if manifest.limits.max_positions < FEWEST_POSITIONS:
        raise PackageError(
            f"{model.package}: max_positions is {manifest.limits.max_positions}; a model that writes needs "
            f"{FEWEST_POSITIONS} at least"
        )
    if is_on_device or (runs_on_device(model) and not model.cpu_fallback):
        return _on_device(model, manifest)
    is_half = may_be_half and wants_half_cache(model)
    budget, needed = _budget(model), bytes_of_longest(manifest, is_half=is_half)
    if needed > budget:
        most = longest_that_fits(manifest, budget, is_half=is_half)
        raise PackageError(
            f"{model.package}: its KV cache may take {budget / 2**20:.1f} MiB, but one sequence of max_positions, "
            f"{manifest.limits.max_positions}, needs {needed / 2**20:.1f} MiB; raise kv_cache_mib in the models file, "
            f"or the memory of the container, or set max_positions, at most {most}"
        )
    return budget


def _on_device(model: ModelSettings, manifest: Manifest) -> int:
    a_slot = bytes_of_longest(manifest)
    needed = model.max_slots * a_slot
    if model.kv_cache_mib is not None and needed > model.kv_cache_mib * 2**20:
        fitting = model.kv_cache_mib * 2**20 // a_slot
        lower = f"max_slots, at most {fitting}, or max_positions" if fitting else "max_positions"
        raise PackageError(
            f"{model.package}: on a device the KV cache is taken whole, and {model.max_slots} slots of max_positions, "
            f"{manifest.limits.max_positions}, need {needed / 2**20:,.0f} MiB, and kv_cache_mib allows "
            f"{model.kv_cache_mib}; raise it, or set {lower}"
        )
    return needed


def fitting_positions(model: ModelSettings, manifest: Manifest) -> int | None:
    """Return how many tokens a decoder's sequence may have for its memory, or None where its `max_positions` fit."""
    if manifest.cache is None or runs_on_device(model):
        return None
    budget, is_half = _budget(model), wants_half_cache(model)
    if bytes_of_longest(manifest, is_half=is_half) <= budget:
        return None
    return longest_that_fits(manifest, budget, is_half=is_half)


def wants_half_cache(model: ModelSettings) -> bool:
    """Tell whether keys and values are to be kept in 16 bits."""
    return model.kv_cache_dtype == "float16"


def _budget(model: ModelSettings) -> int:
    if model.kv_cache_mib is not None:
        return model.kv_cache_mib * 2**20
    return kv_cache_bytes(model.memory_share, memory_limit())
