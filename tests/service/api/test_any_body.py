"""Any body that the documents allow, and many that they do not, get an answer that they describe.

Schemathesis makes the bodies of /openapi.json. By default there are a few for each route; `make fuzz` sends thousands.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.api.app import create_app
from service.metrics import Metrics
from service.models_file import ModelSettings
from service.settings import Limits, Settings
from service.tasks.loading import load_task
from tests.conftest import MakePackage, with_manifest

MODELS = ("sentiment", "embed", "ranker", "entailment", "entities", "answers", "encoder", "stories", "translate")
CHANGES: dict[str, dict[str, Any]] = {
    "stories": {"chat_template": {"source": "{{ messages[0].content }}"}},
    "translate": {"task_prompts": {"summarize": {"prefix": "In short: "}}},
}
CHECKS: Any = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
DOCUMENTS = create_app([], Settings()).openapi()
OPERATIONS = [(path, method) for path, methods in DOCUMENTS["paths"].items() for method in methods]
Result = TypeVar("Result")


def naming_models(documents: dict[str, Any]) -> dict[str, Any]:
    """Say which models there are; of made-up names nearly every answer would be that there is no such model."""
    for schema in documents["components"]["schemas"].values():
        if "model" in schema.get("properties", {}) and "model" not in schema.get("required", []):
            schema["properties"]["model"] = {"enum": [*MODELS, None, None, "nobody"]}
    return documents


class Server:
    """The API over tiny models, on an event loop of its own, as the maker of bodies does not wait."""

    def __init__(self, folders: list[Any]) -> None:
        self.asked = 0
        self.statuses: dict[int, int] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._client = self.run(self._open(folders))
        self.schema: Any = schemathesis.openapi.from_dict(
            naming_models(self.run(self._client.get("/openapi.json")).json())
        )

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self, folders: list[Any]) -> httpx.AsyncClient:
        chosen, metrics = Settings(limits=Limits(max_inputs=16)), Metrics()
        self._tasks = [load_task(ModelSettings(package=each, threads=1), chosen.limits, metrics) for each in folders]
        transport = httpx.ASGITransport(create_app(self._tasks, chosen, metrics), raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)

    def check(self, case: Case[Any]) -> None:
        """Send a case as `requests` would, and hold its answer against the documents."""
        prepared = requests.Request(**case.as_transport_kwargs(base_url="http://test")).prepare()
        headers = dict(prepared.headers)
        sent = httpx.Request(str(prepared.method), str(prepared.url), headers=headers, content=prepared.body)
        response = self.run(self._client.send(sent))
        self.asked += 1
        self.statuses[response.status_code] = self.statuses.get(response.status_code, 0) + 1
        case.validate_response(response, checks=CHECKS)

    def close(self) -> None:
        for task in self._tasks:
            self.run(task.close())
        self.run(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def server(make_package: MakePackage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("any-body")
    server = Server([with_manifest(make_package(name), folder / name, **CHANGES.get(name, {})) for name in MODELS])
    try:
        yield server
    finally:
        server.close()
        print(f"\n{server.asked} cases: {dict(sorted(server.statuses.items()))}")


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize("cases", [3, pytest.param(60, marks=pytest.mark.fuzz)])
def test_any_body_is_answered_as_the_documents_say(
    server: Server, path: str, method: str, mode: GenerationMode, cases: int
) -> None:
    operation = server.schema[path][method]
    if mode is GenerationMode.NEGATIVE and not DOCUMENTS["paths"][path][method].keys() & {"requestBody", "parameters"}:
        pytest.skip("it takes nothing that could be wrong")

    @seed(0)
    @settings(max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Case[Any]) -> None:
        server.check(case)

    try:
        check()
    except Unsatisfiable:
        pytest.skip("all that it takes is right")
