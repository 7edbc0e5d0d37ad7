"""`python -m deploy.generate`, or `make manifests`: write what is made from one source and kept in the repository.

Serve's configurations from models files, the alert rules and their PrometheusRule, the dashboards, NOTICE and the terms
in SPDX's words, the version where images, chart and documents name it, and from all of them install-*.yaml and the
chart's files. A test compares what is in the repository with what this would write.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from deploy.chart import CHART, chart_files
from deploy.kustomize import INSTALL, KUBERNETES, can_render, rendered
from deploy.monitoring.dashboards import DASHBOARDS
from deploy.monitoring.grafana_json import grafana
from deploy.monitoring.rules import RUNBOOKS, rules
from deploy.notice import expression, notice
from service import __version__
from service.serve_config import Replicas, replicas_per_node, serve_config
from service.settings import BUNDLED_MODELS, Settings
from service.timeouts import Timeouts

DEPLOY = Path(__file__).parent
ROOT = DEPLOY.parent
MONITORING = DEPLOY / "monitoring"
IN_IMAGE = Path("/app")  # where the image has the repository's folders
ONE = Replicas(at_least=1, at_most=1)
DOCUMENTS = tuple(DEPLOY / name for name in ("from-nothing.md", "models.md"))
# Where the version stands in files that are otherwise written by hand: behind what, and in tags before what.
_VERSION = re.compile(
    r"(?<=newTag: )\S+(?=-[cg]pu$)|(?<=^version: ).+$|(?<=^appVersion: ).+$"
    r"|(?<=registry\.example\.com/trifold:)\d\S*(?=-[cg]pu\b)|(?<= VERSION=)\d\S*",
    re.M,
)
# What each component serves: its models file, and how many replicas of each there are.
SERVED = {
    "cpu": (BUNDLED_MODELS, Replicas()),
    "gpu": (KUBERNETES / "components" / "gpu" / "models.yaml", Replicas()),
    "dev": (BUNDLED_MODELS, ONE),
}


class _Literal(str):
    """A text that YAML writes as a block."""


yaml.SafeDumper.add_representer(
    _Literal, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
)


def generated(runbooks: str = RUNBOOKS) -> Iterator[tuple[Path, str]]:
    """Yield each file with what belongs in it; `runbooks` is the address of runbooks.md, to which alerts point."""
    check_version(__version__)
    for component, (models_file, replicas) in SERVED.items():
        config = _Literal(_serve_config(models_file, replicas))
        patch = _resource("ray.io/v1", "RayService", {"serveConfigV2": config})
        yield KUBERNETES / "components" / component / "serve-config.yaml", _yaml(patch, models_file)
    alerts, source = rules(runbooks), MONITORING / "rules.py"
    yield MONITORING / "rules.yml", _yaml(alerts, source)
    rule = _resource("monitoring.coreos.com/v1", "PrometheusRule", alerts)
    yield KUBERNETES / "components" / "monitoring" / "prometheusrule.yaml", _yaml(rule, source)
    for dashboard in DASHBOARDS:
        path = MONITORING / "grafana" / "dashboards" / f"{dashboard.uid}.json"
        content = json.dumps(grafana(dashboard), indent=2) + "\n"
        yield path, content
        # Found by the sidecar of Grafana's chart, as kube-prometheus-stack has it.
        resource = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": dashboard.uid, "labels": {"grafana_dashboard": "1"}},
            "data": {path.name: _Literal(content)},
        }
        source = MONITORING / "dashboards.py"
        yield KUBERNETES / "components" / "monitoring" / f"dashboard-{dashboard.uid}.yaml", _yaml(resource, source)
    packages = ROOT / "model" / "packages"
    yield ROOT / "NOTICE", notice(packages, DEPLOY / "image" / "requirements-cpu.txt")
    for path, field in ((ROOT / "pyproject.toml", "license = "), (ROOT / "Dockerfile", "ARG LICENSES=")):
        yield path, re.sub(rf'^({field})".*"$', rf'\1"{expression(packages)}"', path.read_text(), flags=re.M)
    for path in (*sorted(KUBERNETES.rglob("kustomization.yaml")), *DOCUMENTS, CHART / "Chart.yaml"):
        yield path, _VERSION.sub(__version__, path.read_text())


def check_version(version: str) -> None:
    """Raise `ValueError` for a version that either the chart (SemVer) or the wheel (PEP 440) would not take."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(-(dev|rc)\.\d+)?", version):
        raise ValueError(
            f"service/__init__.py: the version is {version!r}; it must be like 1.2.3, 1.2.3-rc.1 or 1.2.3-dev.0"
        )


def installs() -> Iterator[tuple[Path, str]]:
    """Yield each install-*.yaml with its content, for which what `generated` yields must be there."""
    for folder in sorted(INSTALL.iterdir()):
        comment = f"# Made from {folder.relative_to(ROOT)} by `make manifests`.\n"
        yield KUBERNETES / f"install-{folder.name}.yaml", comment + rendered(folder)


def _serve_config(models_file: Path, replicas: Replicas) -> str:
    settings = Settings(models_file=models_file)
    # The bundled models share a process on one machine; on a cluster each is scaled for itself.
    models = [
        model.model_copy(update={"package": IN_IMAGE / model.package.relative_to(ROOT), "replica_group": None})
        if model.package.is_relative_to(ROOT)
        else model
        for model in settings.models(replicas_per_node)
    ]
    config = serve_config(models, Timeouts.of(settings.limits), replicas, _in_repository)
    return yaml.safe_dump(config, sort_keys=False)


def _in_repository(package: Path) -> Path:
    return ROOT / package.relative_to(IN_IMAGE) if package.is_relative_to(IN_IMAGE) else package


def _resource(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "trifold"}, "spec": spec}


def _yaml(content: dict[str, Any], source: Path) -> str:
    comment = f"# Made from {source.relative_to(ROOT)} by `make manifests`.\n"
    return comment + yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True)


def main() -> None:
    """Write them all."""
    parser = argparse.ArgumentParser(prog="python -m deploy.generate", description=__doc__)
    parser.add_argument("--runbooks", default=RUNBOOKS, help="address at which runbooks.md is published")
    for path, content in generated(parser.parse_args().runbooks):
        path.write_text(content)
    if not can_render():
        sys.exit(
            "neither kustomize nor kubectl is there: install-*.yaml and the Helm chart's files are left as they are"
        )
    for path, content in (*installs(), *chart_files()):
        path.write_text(content)


if __name__ == "__main__":
    main()
