"""`python -m service.serve_config`: the models file as a configuration of Ray Serve, for a cluster.

The same options as `python -m service` deploys with, written out so that they can be read and applied by an operator.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from model.package import PackageError
from service.app import EVERY_ADDRESS, MODEL, RAY_LOGS, gateway_options, model_options
from service.settings import ModelSettings, Settings, SettingsError
from service.startup import GATEWAY, model_names
from service.timeouts import Timeouts

SPREAD = {"max_replicas_per_node": 1}


@dataclass(frozen=True)
class Replicas:
    """How many a cluster has where the models file leaves it open."""

    at_least: int = 2  # of the gateway and each model that never sleeps, on nodes of their own, so that a node may die
    at_most: int = 8  # of a model whose own bound is not set; on one machine more would share its cores


def serve_config(models: list[ModelSettings], timeouts: Timeouts, replicas: Replicas = Replicas()) -> dict[str, Any]:
    """Return Serve's configuration of a cluster: an application for each model, and the gateway to all of them.

    Serve ends a request a little later than the service itself would, whose answer says why. The arguments of an
    application have a digest of what it is built from, because Serve builds it anew only when they change. Raises
    `SettingsError` for what only a single machine can do.
    """
    names = model_names(models)
    for model in models:
        if model.cpu_fallback:
            raise SettingsError(
                f"{model.package}: cpu_fallback is for one machine; a cluster waits for a node with a GPU"
            )
    return {
        "proxy_location": "EveryNode",
        "http_options": {
            "host": EVERY_ADDRESS,  # a pod's own too; keys and the network policy say who may come
            "port": 8000,
            **timeouts.http_options(),
        },
        "logging_config": dict(RAY_LOGS),
        "applications": [
            *(_model(name, model, timeouts, replicas) for name, model in zip(names, models, strict=True)),
            _gateway(models, timeouts, replicas),
        ],
    }


def _model(name: str, model: ModelSettings, timeouts: Timeouts, replicas: Replicas) -> dict[str, Any]:
    options = model_options(model, timeouts)
    bounds = options["autoscaling_config"]
    bounds["min_replicas"] = bounds["min_replicas"] and max(bounds["min_replicas"], replicas.at_least)
    if "max_replicas" not in model.autoscaling.model_fields_set:
        bounds["max_replicas"] = replicas.at_most
    bounds["max_replicas"] = max(bounds["max_replicas"], bounds["min_replicas"])
    return {
        "name": name,
        "route_prefix": f"/models/{name}",
        "import_path": "service.app:build_model",
        "args": {"model": name, "digest": _digest([model])},
        "deployments": [{"name": MODEL, **SPREAD, **options}],
    }


def _gateway(models: list[ModelSettings], timeouts: Timeouts, replicas: Replicas) -> dict[str, Any]:
    options = {"num_replicas": replicas.at_least, **SPREAD, **gateway_options(timeouts)}
    return {
        "name": GATEWAY,
        "route_prefix": "/",
        "import_path": "service.app:build_gateway",
        "args": {"digest": _digest(models)},
        "deployments": [{"name": GATEWAY, **options}],
    }


def _digest(models: list[ModelSettings]) -> str:
    """Return what changes when any setting of the models does; where their packages are does not count."""
    settings = [(model.package.name, model.model_dump_json(exclude={"package"})) for model in models]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]


def main() -> None:
    """Print the configuration of a models file."""
    parser = argparse.ArgumentParser(prog="python -m service.serve_config", description=__doc__)
    parser.add_argument("--models", type=Path, dest="models_file", help="models file; overrides TRIFOLD_MODELS_FILE")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    try:
        settings = Settings.read(**given)
        config = serve_config(settings.models(), Timeouts.of(settings.limits))
    except (SettingsError, PackageError) as error:
        sys.exit(f"trifold: {error}")
    yaml.safe_dump(config, sys.stdout, sort_keys=False)


if __name__ == "__main__":
    main()
