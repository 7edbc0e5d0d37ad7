"""One running service for all tests of this folder and of those in it, as starting Ray takes long."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.monitoring.local import free_port
from model.package.manifest import Precision
from tests.conftest import MakePackage, with_manifest
from tests.integration.processes import running, wait_until_ready

MODELS: dict[str, Precision] = {
    **dict.fromkeys(("sentiment", "embed", "stories", "translate"), "int8"),
    **dict.fromkeys(("entailment", "ranker", "entities", "answers", "encoder"), "float32"),
}
# What their manifests say beside what they were exported with.
LANGUAGES = ("en", "de", "fr", "sv")
CHANGES: dict[str, dict[str, Any]] = {
    "stories": {"chat_template": {"source": "{{ messages[0].content }}<|endoftext|>"}},
    "translate": {
        "languages": {"ids": {name: 40 + place for place, name in enumerate(LANGUAGES)}, "forces_target": True},
        "task_prompts": {"summarize": {"prefix": "In short: ", "generation": {"max_tokens": 7, "beam_size": 2}}},
    },
}
ASLEEP = "encoder"
METRICS_PORT = free_port()
RAY_METRICS_PORT = free_port()
HAPROXY_METRICS_PORT = free_port()


def in_models_file(package: Path) -> str:
    """Return a model's lines in the models file; one of them sleeps until somebody asks for it."""
    sleeps = "    autoscaling: {min_replicas: 0}\n" if package.name == ASLEEP else ""
    return f"  - package: {package}\n{sleeps}"


@pytest.fixture(scope="package")
def service(make_package: MakePackage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start `python -m service` over the tiny models; its address."""
    folder = tmp_path_factory.mktemp("service")
    packages = [
        with_manifest(make_package(name, kind), folder / name, **CHANGES.get(name, {})) for name, kind in MODELS.items()
    ]
    (folder / "models.yaml").write_text("models:\n" + "".join(map(in_models_file, packages)))
    port = free_port()
    environment = {
        **os.environ,
        "TRIFOLD_MODELS_FILE": str(folder / "models.yaml"),
        "TRIFOLD_METRICS_PORT": str(METRICS_PORT),
        "TRIFOLD_RAY_METRICS_PORT": str(RAY_METRICS_PORT),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(HAPROXY_METRICS_PORT),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
    }
    address = f"http://127.0.0.1:{port}"
    with running([sys.executable, "-m", "service", "--port", str(port)], environment, folder / "log") as process:
        wait_until_ready(process, address, folder / "log")
        yield address
    with pytest.raises(httpx.ConnectError):  # nothing is left listening
        httpx.get(f"{address}/health")
