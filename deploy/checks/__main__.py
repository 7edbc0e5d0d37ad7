"""`python -m deploy.checks`: compose and check the components; exit status 1 if anything is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import yaml

from deploy.checks.compositions import COMPOSITIONS
from deploy.checks.entrances import PATIENCE, too_impatient
from deploy.checks.plain import drain_problems
from deploy.checks.ray_service import (
    budget_problems,
    environment_problems,
    operator_problems,
    security_problems,
    timeout_problems,
)
from deploy.checks.schemas import schema_problems
from deploy.checks.serve import config_problems
from deploy.kustomize import can_render, compose


def problems(resources: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield everything that is wrong with the resources that components make, each with the check that found it."""
    for resource in resources:
        name = f"{resource['kind']} {resource['metadata']['name']}"
        yield from (("schemas", f"{name}: {problem}") for problem in schema_problems(resource))
        yield from (("security", f"{name}: {problem}") for problem in security_problems(resource))
        if resource["kind"] == "PodDisruptionBudget":
            yield from (("operator", f"{name}: {problem}") for problem in budget_problems(resource))
        if resource["kind"] == "Deployment":
            yield from (("timeouts", f"{name}: {problem}") for problem in drain_problems(resource))
        if patience := PATIENCE.get(resource["kind"]):
            yield from (("timeouts", f"{name}: {problem}") for problem in too_impatient(patience(resource)))
        if resource["kind"] == "RayService":
            config = yaml.safe_load(resource["spec"]["serveConfigV2"])
            for check, found in (
                ("operator", operator_problems(resource)),
                ("environment", environment_problems(resource)),
                ("serve", config_problems(config)),
                ("timeouts", timeout_problems(resource)),
            ):
                yield from ((check, f"{name}: {problem}") for problem in found)


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
