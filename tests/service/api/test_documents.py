"""What /docs shows: every task with examples that can be tried as they are."""

from __future__ import annotations

from typing import Any

from model.package import Manifest
from service.ingress import ROUTES
from tests.conftest import MakePackage
from tests.service.api.conftest import OpenClient

MODELS = ("entailment", "ranker", "entities", "answers", "encoder", "embed", "stories", "translate")


def examples(document: dict[str, Any], path: str) -> list[dict[str, Any]]:
    """Return the bodies that the documents show for a path, whole or put together from those of the fields."""
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    if "examples" in content:
        return [example["value"] for example in content["examples"].values()]
    schema = document["components"]["schemas"][content["schema"]["$ref"].rsplit("/", 1)[1]]
    return [{name: schema["properties"][name]["examples"][0] for name in schema["required"]}]


async def test_every_example_in_the_documents_is_answered(open_client: OpenClient, make_package: MakePackage) -> None:
    manifests: list[Manifest] = [make_package(name).manifest for name in MODELS]
    answered = {task for manifest in manifests for task in manifest.tasks}
    async with open_client(*MODELS) as client:
        document = (await client.get("/openapi.json")).json()
        for path, task in ROUTES.items():
            for body in examples(document, path):
                response = await client.post(path, json=body)
                expected = 200 if task is None or task in answered else 404
                assert response.status_code == expected, (path, body, response.text)
