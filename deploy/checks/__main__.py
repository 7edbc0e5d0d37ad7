"""`python -m deploy.checks`: compose and check the components; exit status 1 if anything is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import yaml

from deploy.checks.compositions import COMPOSITIONS
from deploy.checks.entrances import IDLE, PATIENCE, closed_too_soon, too_impatient
from deploy.checks.plain import plain_problems
from deploy.checks.pods import file_problems, security_problems
from deploy.checks.ray_service import budget_problems, environment_problems, operator_problems
from deploy.checks.schemas import schema_problems
from deploy.checks.serve import config_problems
from deploy.checks.timeouts import limits_of, timeout_problems
from deploy.kustomize import can_render, compose
from service.settings import Limits

Resource = dict[str, Any]


def problems(resources: list[Resource]) -> Iterator[tuple[str, str]]:
    """Yield everything that is wrong with the resources that components make, each with the check that found it."""
    limits = next((limits_of(each) for each in resources if each["kind"] in ("RayService", "Deployment")), Limits())
    for resource in resources:
        name = f"{resource['kind']} {resource['metadata']['name']}"
        for check, found in _checks(resource, limits):
            yield from ((check, f"{name}: {problem}") for problem in found)


def _checks(resource: Resource, limits: Limits) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield the checks that are for a resource of its kind, and what each finds."""
    yield "schemas", schema_problems(resource)
    yield "security", security_problems(resource)
    yield "files", file_problems(resource)
    kind = resource["kind"]
    if kind in PATIENCE:
        yield "timeouts", too_impatient(PATIENCE[kind](resource), limits)
    if kind in IDLE:
        yield "idle connections", closed_too_soon(IDLE[kind](resource))
    if kind == "PodDisruptionBudget":
        yield "operator", budget_problems(resource)
    if kind == "Deployment":
        yield "timeouts", plain_problems(resource)
    if kind == "RayService":
        yield "operator", operator_problems(resource)
        yield "environment", environment_problems(resource)
        yield "serve", config_problems(yaml.safe_load(resource["spec"]["serveConfigV2"]))
        yield "timeouts", timeout_problems(resource)


def main() -> None:
    """Check them all."""
    if not can_render():
        sys.exit("neither kustomize nor kubectl is there")
    failed = False
    for composition in COMPOSITIONS:
        resources = compose(composition.base, composition.components)
        found = list(problems(resources))
        failed |= bool(found)
        verdict = "wrong" if found else "all checks passed"
        sys.stdout.write(f"{composition}: {len(resources)} resources: {verdict}\n")
        sys.stdout.writelines(f"  {check}: {problem}\n" for check, problem in found)
    sys.exit(failed)


if __name__ == "__main__":
    main()
