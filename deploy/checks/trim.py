"""`python -m deploy.checks.trim FILE…`: CustomResourceDefinitions as the JSON schemas of `deploy/checks/crds`.

A definition of an operator has megabytes, most of them descriptions, and the schema of a pod once for each place that
has one. Here are only the rules, strict; a part that occurs more than once stands once; old versions are left out.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

CRDS = Path(__file__).parent / "crds"
SHORT = 80  # characters: what is not longer than that is no shorter as a reference


def trim(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a definition's strict schemas by API version, as `{"group", "kind", "versions", "$defs"}`."""
    spec = definition["spec"]
    schemas = {
        version["name"]: strict(version["schema"]["openAPIV3Schema"])
        for version in spec["versions"]
        if version["served"] and not version.get("deprecated")
    }
    for schema in schemas.values():
        schema["properties"]["metadata"] = {"type": "object"}  # Kubernetes' own, which the definition leaves out
    counts: Counter[str] = Counter()
    _count(schemas, counts)
    shared: dict[str, Any] = {}
    versions = {name: _with_references(schema, counts, shared) for name, schema in schemas.items()}
    return {"group": spec["group"], "kind": spec["names"]["kind"], "versions": versions, "$defs": shared}


def strict(schema: Any) -> Any:
    """Turn an OpenAPI schema of Kubernetes into a JSON schema that allows no unknown fields."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(part) for name, part in schema.items() if name not in _LEFT_OUT}
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


_LEFT_OUT = {
    *("nullable", "properties", "description", "default", "format"),
    *("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"),
}


def _key(schema: Any) -> str:
    return hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()[:10]


def _count(schema: Any, counts: Counter[str]) -> None:
    """Count how often each part occurs."""
    if isinstance(schema, dict):
        counts[_key(schema)] += 1
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _count(part, counts)


def _with_references(schema: Any, counts: Counter[str], shared: dict[str, Any], inside: str = "") -> Any:
    """Return a schema whose repeated parts are references to `shared`."""
    if isinstance(schema, list):
        return [_with_references(part, counts, shared) for part in schema]
    if not isinstance(schema, dict):
        return schema
    key = _key(schema)
    is_schema = inside != "properties"  # the names of properties are no schema that could be referred to
    if is_schema and counts[key] > 1 and len(json.dumps(schema)) > SHORT:
        if key not in shared:
            shared[key] = None
            shared[key] = {name: _with_references(part, counts, shared, name) for name, part in schema.items()}
        return {"$ref": f"#/$defs/{key}"}
    return {name: _with_references(part, counts, shared, name) for name, part in schema.items()}


def main() -> None:
    """Write a schema of each definition in the files."""
    for path in map(Path, sys.argv[1:]):
        for definition in yaml.safe_load_all(path.read_text()):
            if definition and definition["kind"] == "CustomResourceDefinition":
                name = definition["spec"]["names"]["kind"].lower()
                (CRDS / f"{name}.json").write_text(json.dumps(trim(definition), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
