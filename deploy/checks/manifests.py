"""Overlays rendered, and held against strict schemas."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from jsonschema import Draft202012Validator

Resource = dict[str, Any]
KUBERNETES_VERSION = "1.33"
OVERLAYS = Path(__file__).parent.parent / "kubernetes" / "overlays"
# CustomResourceDefinitions of KubeRay and prometheus-operator, a file each; they are not part of this repository.
CRDS = Path(os.environ.get("TRIFOLD_CRDS", Path(__file__).parents[2].parent / "shared" / "schemas"))


def overlays() -> list[str]:
    """Name the overlays."""
    return sorted(folder.name for folder in OVERLAYS.iterdir())


def can_render() -> bool:
    """Tell whether kubectl or kustomize is there."""
    return bool(_kustomize())


def render(overlay: str) -> list[Resource]:
    """Return an overlay's resources as `kubectl apply` would send them."""
    command = [*_kustomize(), str(OVERLAYS / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def _kustomize() -> list[str]:
    return (
        ["kustomize", "build"]
        if shutil.which("kustomize")
        else ["kubectl", "kustomize"] * bool(shutil.which("kubectl"))
    )


def schema_problems(resource: Resource) -> Iterator[str]:
    """Yield what a resource's strict schema does not allow."""
    crds = strict_schemas(CRDS)
    key = (resource["apiVersion"], resource["kind"])
    if key in crds:
        for error in Draft202012Validator(crds[key]).iter_errors(resource):
            yield f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"
        return
    try:
        kubernetes_validate.validate(resource, KUBERNETES_VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{'.'.join(map(str, error.path))}: {error.message[:300]}"
    except kubernetes_validate.SchemaNotFoundError:
        yield f"there is no schema of {resource['apiVersion']} {resource['kind']}; TRIFOLD_CRDS names the CRDs' folder"


@cache
def strict_schemas(folder: Path) -> dict[tuple[str, str], Any]:
    """Return a folder's CustomResourceDefinitions as strict JSON schemas, by API version and kind."""
    schemas = {}
    for path in folder.glob("*.yaml"):
        definition = yaml.safe_load(path.read_text())["spec"]
        for version in definition["versions"]:
            key = (f"{definition['group']}/{version['name']}", definition["names"]["kind"])
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}  # Kubernetes' own, which the definition leaves out
            schemas[key] = schema
    return schemas


def strict(schema: Any) -> Any:
    """Turn an OpenAPI schema of Kubernetes into a JSON schema that allows no unknown fields."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(part) for name, part in schema.items() if name not in {"nullable", "properties"}}
    if isinstance(schema.get("properties"), dict):
        made["properties"] = {name: strict(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in schema:
            made["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if schema.get("nullable") and isinstance(schema.get("type"), str):
        made["type"] = [schema["type"], "null"]
    return made
