"""`python -m deploy.checks`: render and check every overlay; exit status 1 if anything is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import yaml

from deploy.checks.manifests import overlays, render, schema_problems
from deploy.checks.ray_service import (
    budget_problems,
    environment_problems,
    operator_problems,
    security_problems,
    timeout_problems,
)
from deploy.checks.serve import config_problems


def problems(resources: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield everything that is wrong with an overlay's resources, each with the check that found it."""
    for resource in resources:
        name = f"{resource['kind']} {resource['metadata']['name']}"
        yield from (("schemas", f"{name}: {problem}") for problem in schema_problems(resource))
        yield from (("security", f"{name}: {problem}") for problem in security_problems(resource))
        if resource["kind"] == "PodDisruptionBudget":
            yield from (("operator", f"{name}: {problem}") for problem in budget_problems(resource))
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
    failed = False
    for overlay in overlays():
        resources = render(overlay)
        found = list(problems(resources))
        failed |= bool(found)
        kinds = ", ".join(resource["kind"] for resource in resources)
        sys.stdout.write(
            f"{overlay}: {len(resources)} resources ({kinds}): {'wrong' if found else 'all checks passed'}\n"
        )
        sys.stdout.writelines(f"  {check}: {problem}\n" for check, problem in found)
    sys.exit(failed)


if __name__ == "__main__":
    main()
