"""Which components are composed, to be checked."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class Composition:
    """A base and its components, in their order."""

    base: str
    components: tuple[str, ...]

    def __str__(self) -> str:
        return " + ".join([self.base, *self.components])


SERVED = ("cpu", "gpu", "dev")  # of the base, exactly one of them: what is served, and on what
EXTRAS = ("ha", "monitoring")  # any of them
SECRETS = (None, "pull-secret", "pull-secret", None)  # with or without
POLICIES = (None, "network-policy/plain", "network-policy/gke", "network-policy/eks")  # one of them, or none
# The same, in a turn of another length.
MODELS = (None, "models/store", "models/volume", "models/image", "models-file")
ENTRANCES = (None, "gateway-api/plain", "gateway-api/gke", "ingress/eks")  # the same


def _compositions() -> list[Composition]:
    """Return each of `SERVED`, and what needs no KubeRay, with any of `EXTRAS`; the others take turns."""
    turns = zip(*map(itertools.cycle, (SECRETS, POLICIES, MODELS, ENTRANCES)), strict=False)
    choices = [
        *(("base", choice) for choice in itertools.product(SERVED, *((None, extra) for extra in EXTRAS))),
        *(("plain", choice) for choice in itertools.product((None, "keda"), (None, "monitoring"))),
    ]
    return [
        Composition(base, tuple(_fitted([*filter(None, (*choice, *turn))])))
        for (base, choice), turn in zip(choices, turns, strict=False)
    ]


def _fitted(components: list[str]) -> list[str]:
    """Return components without what another includes, and with the way to the store where a policy closes it."""
    if "gpu" in components:
        components = [each for each in components if each != "models-file"]
    is_closed = "models/store" in components and not set(POLICIES).isdisjoint(components)
    return [*components, "network-policy/store"] if is_closed else components


COMPOSITIONS = _compositions()
