"""Which models share a replica: one process with an engine and a queue for each of them, and one application of Serve.

`replica_group: NAME` in the models file puts models together. One that says nothing has a replica of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model.package import PackageError
from service.models_file import ModelSettings
from service.settings_errors import SettingsError

GATEWAY = "gateway"  # the name of its application, beside those of the models
GATEWAY_CPUS = 0.1  # which Ray reserves for it
REPLICA = "model"  # the name of a replica's deployment, in each application of models
# Fields that are about a replica as a whole, in which the models of one must agree.
OF_REPLICA = ("autoscaling", "num_cpus", "num_gpus", "cpu_fallback", "max_ongoing_requests")


@dataclass(frozen=True)
class ReplicaGroup:
    """The models of one replica, in the order of the models file."""

    name: str  # of its application
    models: tuple[ModelSettings, ...]

    @property
    def settings(self) -> ModelSettings:
        """The settings of a replica, which are the same for all of its models."""
        return self.models[0]

    @property
    def cache_slots(self) -> int:
        """Rows of the KV caches of its models, by which it is scaled; without the packages, all count as having one."""
        try:
            with_cache = [model.max_slots for model in self.models if model.manifest().cache is not None]
        except PackageError:
            with_cache = [model.max_slots for model in self.models]
        return sum(with_cache) or self.settings.max_slots

    @property
    def is_named(self) -> bool:
        """Whether the models file says which models it has; else it is that of one model, and is called like it."""
        return self.settings.replica_group is not None

    @property
    def route_prefix(self) -> str:
        """Where HAProxy finds it: at its model's address, or at one that `service.ingress` sends its models' to."""
        return f"/replicas/{self.name}" if self.is_named else f"/models/{self.name}"


def replica_groups(models: Sequence[ModelSettings], names: Sequence[str] | None = None) -> list[ReplicaGroup]:
    """Return all groups, in the order of their first models; raises `PackageError`, and `SettingsError`.

    `names` are those of the models, if they are known; else packages are asked for theirs.
    """
    groups: dict[str, list[ModelSettings]] = {}
    for name, model in zip(names or model_names(models), models, strict=True):
        groups.setdefault(model.replica_group or name, []).append(model)
    for name, members in groups.items():
        _check_agreement(name, members)
    return [ReplicaGroup(name, tuple(members)) for name, members in groups.items()]


def takes_gateway(groups: Sequence[ReplicaGroup]) -> bool:
    """Whether one machine needs no gateway beside the models: their only replica, if it never sleeps, does its work."""
    return len(groups) == 1 and groups[0].settings.autoscaling.min_replicas > 0


def model_names(models: Sequence[ModelSettings]) -> list[str]:
    """Return the models' names, one of each; raises `PackageError`, and `SettingsError` for one that is not its own."""
    groups = {model.replica_group for model in models}
    folders: dict[str, ModelSettings] = {}
    for model in models:
        name = model.name or model.manifest().name  # which fits into an address
        if GATEWAY in (name, model.replica_group):
            what = "model" if name == GATEWAY else "replica_group"
            raise SettingsError(f"{model.package}: a {what} cannot be named {GATEWAY}, as the gateway itself is")
        if name in folders:
            raise SettingsError(
                f"{model.package}: there is another model named {name}, {folders[name].package}; "
                "give one of them a name in the models file, or list it once with more replicas"
            )
        if model.replica_group is None and name in groups:
            raise SettingsError(
                f"{model.package}: {name} is also the name of a replica_group that this model is not in"
            )
        folders[name] = model
    _check_aliases(folders)
    return list(folders)


def names_by_alias(models: Sequence[ModelSettings]) -> dict[str, str]:
    """Return the names of the models by the further ones that requests may have; raises as `model_names` does."""
    return {alias: name for name, model in zip(model_names(models), models, strict=True) for alias in model.aliases}


def _check_aliases(models: Mapping[str, ModelSettings]) -> None:
    meant = {name: name for name in models}
    for name, model in models.items():
        for alias in model.aliases:
            if meant.setdefault(alias, name) != name:
                raise SettingsError(
                    f"{model.package}: aliases has {alias}, which is a name of {models[meant[alias]].package}, too"
                )


def _check_agreement(name: str, models: Sequence[ModelSettings]) -> None:
    first = models[0]
    for model in models[1:]:
        for field in OF_REPLICA:
            if getattr(model, field) != getattr(first, field):
                raise SettingsError(
                    f"{model.package}: {field} is not what {first.package} has; it is the replica's, "
                    f"so all models of the replica_group {name} must have the same"
                )
