"""`python -m service.serve_config`: the models file as a configuration of Ray Serve, for a cluster.

The same options as `python -m service` deploys with, written out so that they can be read and applied by an operator.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from model.package import PackageError
from service.app import EVERY_ADDRESS, PORT_OF_CLUSTER, RAY_LOGS, gateway_options, replica_options
from service.models_file import ModelSettings
from service.replica_groups import GATEWAY, REPLICA, ReplicaGroup, model_names, replica_groups
from service.settings import Settings
from service.settings_errors import SettingsError
from service.timeouts import Timeouts


@dataclass(frozen=True)
class Replicas:
    """How many a cluster has where the models file leaves it open."""

    at_least: int = 2  # of the gateway and each model that never sleeps, on nodes of their own, so that a node may die
    at_most: int = 8  # of a model whose own bound is not set; on one machine more would share its cores


# Of replicas that need no device: not on the pods that have one, which would never be idle, and their nodes never go.
# A node without the label is no such node; `components/gpu/group` has it.
OFF_DEVICES = {"trifold/device": "!gpu"}
MAX_PER_NODE = 100  # replicas of a deployment, of which Ray takes no more


def replicas_per_node(model: ModelSettings) -> int:
    """Return how many replicas of a model a pod may have: one, or as many as share its device."""
    return min(MAX_PER_NODE, int(1 / model.num_gpus)) if 0 < model.num_gpus < 1 else 1


def _as_it_is(package: Path) -> Path:
    return package


def serve_config(
    models: list[ModelSettings],
    timeouts: Timeouts,
    replicas: Replicas = Replicas(),
    here: Callable[[Path], Path] = _as_it_is,
) -> dict[str, Any]:
    """Return Serve's configuration of a cluster: an application for each group of models, and the gateway to all.

    Serve ends a request a little later than the service itself would, whose answer says why. The arguments of an
    application are the settings that it is built of, because Serve builds it anew only when they change; bounds and
    delays of autoscaling are none of them, so that a change of these restarts nothing. `here` says where a package of
    the cluster lies on this machine. Raises `SettingsError` for what only a single machine can do.
    """
    found_here = [model.model_copy(update={"package": here(model.package)}) for model in models]
    names = model_names(found_here)
    slots = {group.name: group.cache_slots for group in replica_groups(found_here, names)}
    for model in models:
        if model.cpu_fallback:
            raise SettingsError(
                f"{model.package}: cpu_fallback is for one machine; a cluster waits for a node with a GPU"
            )
    return {
        "proxy_location": "EveryNode",
        "http_options": {
            "host": EVERY_ADDRESS,  # a pod's own too; keys and the network policy say who may come
            "port": PORT_OF_CLUSTER,
            **timeouts.http_options(),
        },
        "logging_config": dict(RAY_LOGS),
        "applications": [
            *(_group(group, slots[group.name], timeouts, replicas) for group in replica_groups(models, names)),
            _gateway(models, timeouts, replicas),
        ],
    }


def _group(group: ReplicaGroup, cache_slots: int, timeouts: Timeouts, replicas: Replicas) -> dict[str, Any]:
    settings = group.settings
    options = replica_options(settings, cache_slots, timeouts)
    if not settings.num_gpus:
        options["ray_actor_options"]["label_selector"] = dict(OFF_DEVICES)
    bounds = options["autoscaling_config"]
    bounds["min_replicas"] = bounds["min_replicas"] and max(bounds["min_replicas"], replicas.at_least)
    if "max_replicas" not in settings.autoscaling.model_fields_set:
        bounds["max_replicas"] = max(replicas.at_most, settings.autoscaling.max_replicas)
    bounds["max_replicas"] = max(bounds["max_replicas"], bounds["min_replicas"])
    built_of = [model.model_dump(mode="json", exclude_defaults=True, exclude={"autoscaling"}) for model in group.models]
    return {
        "name": group.name,
        "route_prefix": group.route_prefix,
        "import_path": "service.app:build_model",
        "args": {"models": built_of},
        "deployments": [{"name": REPLICA, "max_replicas_per_node": replicas_per_node(settings), **options}],
    }


def _gateway(models: list[ModelSettings], timeouts: Timeouts, replicas: Replicas) -> dict[str, Any]:
    options = {"num_replicas": replicas.at_least, "max_replicas_per_node": 1, **gateway_options(timeouts)}
    options["ray_actor_options"]["label_selector"] = dict(OFF_DEVICES)
    return {
        "name": GATEWAY,
        "route_prefix": "/",
        "import_path": "service.app:build_gateway",
        "args": {"models": [_for_gateway(model) for model in models]},
        "deployments": [{"name": GATEWAY, **options}],
    }


def _for_gateway(model: ModelSettings) -> dict[str, Any]:
    """Return what the gateway has to know of a model: its name and limits, its replica, and whether it may sleep."""
    asleep = {"autoscaling": {"min_replicas": 0}} if model.autoscaling.min_replicas == 0 else {}
    known = model.model_dump(
        mode="json", exclude_defaults=True, include={"package", "name", "aliases", "replica_group", "max_positions"}
    )
    return {**known, **asleep}


def main() -> None:
    """Print the configuration of a models file."""
    parser = argparse.ArgumentParser(prog="python -m service.serve_config", description=__doc__)
    parser.add_argument("--models", type=Path, dest="models_file", help="models file; overrides TRIFOLD_MODELS_FILE")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    try:
        settings = Settings.read(**given)
        config = serve_config(settings.models(replicas_per_node), Timeouts.of(settings.limits))
    except (SettingsError, PackageError) as error:
        sys.exit(f"trifold: {error}")
    yaml.safe_dump(config, sys.stdout, sort_keys=False)


if __name__ == "__main__":
    main()
