"""Which components are composed, to be checked."""

from __future__ import annotations

import itertools

SERVED = ("cpu", "gpu", "dev")  # exactly one of them: what is served, and on what
EXTRAS = ("ha", "monitoring", "pull-secret")  # any of them
POLICIES = (None, "network-policy/plain", "network-policy/gke", "network-policy/eks")  # one of them, or none


def _compositions() -> list[tuple[str, ...]]:
    """Return each of `SERVED` with any of `EXTRAS`, and the policies in turn."""
    policies = itertools.cycle(POLICIES)
    choices = itertools.product(SERVED, *((None, extra) for extra in EXTRAS))
    return [tuple(filter(None, (*choice, next(policies)))) for choice in choices]


COMPOSITIONS = _compositions()
