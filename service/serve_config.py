"""`python -m service.serve_config`: the models file as a configuration of Ray Serve, for a cluster.

The same options as `python -m service` deploys with, written out so that they can be read and applied by an operator.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from model.package import Manifest, PackageError
from service.app import GATEWAY, MODEL, gateway_options, model_options
from service.settings import ModelSettings, Settings, SettingsError

REPLICAS_AT_LEAST = 2  # of a model that never sleeps, each on a node of its own, so that a node may die
KEEP_ALIVE_S = 90


def serve_config(models: list[ModelSettings], request_timeout_s: float) -> dict[str, Any]:
    """Return Serve's configuration of a cluster: an application for each model, and the gateway to all of them.

    Serve ends a request a little later than the service itself would, whose answer says why.
    """
    return {
        "proxy_location": "EveryNode",
        "http_options": {
            "host": "0.0.0.0",  # noqa: S104  # a pod's own address; the network policy says who may come
            "port": 8000,
            "request_timeout_s": request_timeout_s + 10,
            "keep_alive_timeout_s": KEEP_ALIVE_S,
        },
        "logging_config": {"encoding": "JSON", "enable_access_log": False},
        "applications": [*map(_model, models), _gateway()],
    }


def _model(model: ModelSettings) -> dict[str, Any]:
    name = Manifest.load(model.package).name
    options = model_options(model)
    bounds = options["autoscaling_config"]
    bounds["min_replicas"] = bounds["min_replicas"] and max(bounds["min_replicas"], REPLICAS_AT_LEAST)
    bounds["max_replicas"] = max(bounds["max_replicas"], bounds["min_replicas"])
    return {
        "name": name,
        "route_prefix": f"/models/{name}",
        "import_path": "service.app:build_model",
        "args": {"model": name},
        "deployments": [{"name": MODEL, "max_replicas_per_node": 1, **options}],
    }


def _gateway() -> dict[str, Any]:
    spread = {"num_replicas": REPLICAS_AT_LEAST, "max_replicas_per_node": 1}
    return {
        "name": GATEWAY,
        "route_prefix": "/",
        "import_path": "service.app:build_gateway",
        "args": {},
        "deployments": [{"name": GATEWAY, **spread, **gateway_options()}],
    }


def main() -> None:
    """Print the configuration of a models file."""
    parser = argparse.ArgumentParser(prog="python -m service.serve_config", description=__doc__)
    parser.add_argument("--models", type=Path, dest="models_file", help="models file; overrides TRIFOLD_MODELS_FILE")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    try:
        settings = Settings.read(**given)
        config = serve_config(settings.models(), settings.limits.request_timeout_s)
    except (SettingsError, PackageError) as error:
        sys.exit(f"trifold: {error}")
    yaml.safe_dump(config, sys.stdout, sort_keys=False)


if __name__ == "__main__":
    main()
