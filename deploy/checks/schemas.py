"""Resources held against strict schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from jsonschema import Draft202012Validator

from deploy.checks.trim import CRDS, strict

Resource = dict[str, Any]
KUBERNETES_VERSION = "1.33"
FIELDS = Path(__file__).parent / "fields.yaml"


def schema_problems(resource: Resource) -> Iterator[str]:
    """Yield what a resource's strict schema does not allow."""
    crds = strict_schemas()
    key = (resource["apiVersion"], resource["kind"])
    if key in crds:
        for error in Draft202012Validator(crds[key]).iter_errors(resource):
            yield f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"
        return
    yield from _built_in_problems(json.dumps(resource, sort_keys=True))


@cache  # the library reads megabytes for each resource, and most are in many compositions
def _built_in_problems(resource: str) -> tuple[str, ...]:
    content = json.loads(resource)
    try:
        kubernetes_validate.validate(content, KUBERNETES_VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        return (f"{'.'.join(map(str, error.path))}: {error.message[:300]}",)
    except kubernetes_validate.SchemaNotFoundError:
        return (f"there is no schema of {content['apiVersion']} {content['kind']}",)
    return ()


@cache
def strict_schemas() -> dict[tuple[str, str], Any]:
    """Return the strict JSON schemas of operators' resources, by API version and kind."""
    schemas = {}
    for path in CRDS.glob("*.json"):
        definition = json.loads(path.read_text())
        for version, schema in definition["versions"].items():
            key = (f"{definition['group']}/{version}", definition["kind"])
            schemas[key] = {"$defs": definition["$defs"], **schema}
    for version, kinds in yaml.safe_load(FIELDS.read_text()).items():
        for kind, spec in kinds.items():
            parts: dict[str, Any] = {name: {} for name in ("apiVersion", "kind", "metadata")}
            schemas[version, kind] = strict({"properties": {**parts, "spec": spec}, "required": ["spec"]})
    return schemas
