"""What /docs shows: every task with examples that can be tried as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model.package import Manifest
from service.routing import ROUTES, first_fitting
from tests.conftest import MakePackage, with_manifest
from tests.service.api.conftest import Client, OpenClient
from tests.service.tasks.tools.templates import MARKED

MODELS = ("entailment", "ranker", "entities", "answers", "encoder", "embed", "sparse")
SUMMARY = {"prefix": "In short: "}
REFUSED = {"/embed_all": 424}  # a route of TEI that no package can answer


def examples(document: dict[str, Any], path: str) -> list[dict[str, Any]]:
    """Return the bodies that the documents show for a path, whole or put together from those of the fields."""
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    if "examples" in content:
        return [example["value"] for example in content["examples"].values()]
    schema = document["components"]["schemas"][content["schema"]["$ref"].rsplit("/", 1)[1]]
    return [{name: schema["properties"][name]["examples"][0] for name in schema["required"]}]


def numbers(document: dict[str, Any], part: Any, place: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the places of whole numbers without a bound in a part of the document."""
    if isinstance(part, list):
        for each in part:
            yield from numbers(document, each, place, seen)
    if not isinstance(part, dict):
        return
    reference = part.get("$ref")
    if reference is not None and reference not in seen:
        *_, name = reference.split("/")
        yield from numbers(document, document["components"]["schemas"][name], f"{place} {name}", seen | {reference})
    if part.get("type") == "integer" and not {"maximum", "exclusiveMaximum", "enum", "const"} & part.keys():
        yield place
    for name, value in part.items():
        is_ids = name == "items" and isinstance(value, dict) and value.get("type") == "integer"  # a vocabulary bounds
        if not is_ids and name != "examples":
            yield from numbers(document, value, f"{place}.{name}", seen)


async def test_every_number_of_a_request_has_a_bound(client: Client) -> None:
    document = (await client.get("/openapi.json")).json()
    bodies = {path: methods["post"]["requestBody"] for path, methods in document["paths"].items() if "post" in methods}

    assert [place for path, body in bodies.items() for place in numbers(document, body, path)] == []


async def test_every_example_in_the_documents_is_answered(
    open_client: OpenClient, make_package: MakePackage, tmp_path: Path
) -> None:
    stories = with_manifest(make_package("long_stories"), tmp_path / "stories", chat_template={"source": MARKED})
    translate = with_manifest(make_package("translate"), tmp_path / "translate", task_prompts={"summarize": SUMMARY})
    folders = [*(make_package(name).folder for name in MODELS), stories, translate]
    manifests = [Manifest.load(folder) for folder in folders]
    async with open_client(*folders) as client:
        document = (await client.get("/openapi.json")).json()
        for path, kind in ROUTES.items():
            for body in examples(document, path):
                response = await client.post(path, json=body)
                expected = REFUSED.get(path, 404 if first_fitting(manifests, kind) is None else 200)
                assert response.status_code == expected, (path, body, response.text)
                told = document["paths"][path]["post"]["responses"][str(expected)]["content"]
                assert response.headers["content-type"].partition(";")[0] in told, path
