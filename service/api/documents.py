"""/openapi.json: FastAPI's, with every error that a route may answer, in the form of its protocol; /docs shows it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from mimetypes import guess_type
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from service.api.error_forms import SHARED, ErrorForm, error_form
from service.errors import ServiceError

Schema = dict[str, Any]
# Of a stream: its data is the JSON of a piece, or of an error, and at last [DONE].
EVENT: Schema = {
    "type": "object",
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
}
# Of a package, so that /docs works without internet.
SCRIPT, STYLE, ICON = (f"/swagger/{name}" for name in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"))
SHOWN = {"tryItOutEnabled": True, "persistAuthorization": True, "filter": True, "displayRequestDuration": True}
_OF_FASTAPI = ("HTTPValidationError", "ValidationError")  # which it says of every route, and none answers


def add_documents(app: FastAPI) -> None:
    """Add /docs and the files that it needs.

    It asks for them by their paths alone: with a scheme that would be http, which a page behind TLS may not ask for.
    """

    async def file(request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        content = (files("fastapi_swagger.resources") / name).read_bytes()
        return Response(content, media_type=guess_type(name)[0])

    for path in (SCRIPT, STYLE, ICON):
        app.router.add_route(path, file)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        root: str = request.scope.get("root_path", "")
        return get_swagger_ui_html(
            openapi_url=f"{root}{app.openapi_url}",
            title=app.title,
            swagger_js_url=f"{root}{SCRIPT}",
            swagger_css_url=f"{root}{STYLE}",
            swagger_favicon_url=f"{root}{ICON}",
            swagger_ui_parameters=SHOWN,
        )


def openapi(app: FastAPI) -> Schema:
    """Return the documents of an app's routes, made once."""
    if app.openapi_schema is None:
        app.openapi_schema = _with_errors(
            get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        )
    return app.openapi_schema


def _with_errors(documents: Schema) -> Schema:
    schemas: Schema = documents["components"]["schemas"]
    for name in _OF_FASTAPI:
        schemas.pop(name, None)
    for path, operations in documents["paths"].items():
        forms = [error_form(path), *([SHARED[path]] if path in SHARED else [])]
        for form in forms:
            schemas[form.model.__name__] = form.model.model_json_schema()
        for operation in operations.values():
            answers = operation["responses"]
            answers.pop("422", None)
            if _may_stream(operation, schemas):
                answers["200"].setdefault("content", {})["text/event-stream"] = {"schema": EVENT}
            answers.update({status: _response(forms, status) for status in _statuses(forms)})
    return documents


def _may_stream(operation: Schema, schemas: Schema) -> bool:
    """Whether a route answers with server-sent events if its body asks for them."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    body = content.get("schema", {})
    names = [each["$ref"].rpartition("/")[2] for each in [body, *body.get("oneOf", [])] if "$ref" in each]
    return any("stream" in schemas[name].get("properties", {}) for name in names)


def _statuses(forms: list[ErrorForm]) -> list[str]:
    return sorted({str(form.status(error)) for form in forms for error in _errors()})


def _response(forms: list[ErrorForm], status: str) -> Schema:
    """Describe the answer of one status: what it may mean, and its bodies."""
    fitting = {
        form.model.__name__: [error for error in _errors() if str(form.status(error)) == status] for form in forms
    }
    bodies = [{"$ref": f"#/components/schemas/{name}"} for name, errors in fitting.items() if errors]
    meanings = dict.fromkeys(_meaning(error) for errors in fitting.values() for error in errors)
    content = {"application/json": {"schema": bodies[0] if len(bodies) == 1 else {"anyOf": bodies}}}
    return {"description": " ".join(meanings), "content": content}


def _meaning(error: ServiceError) -> str:
    return (type(error).__doc__ or "").partition("\n")[0]


def _errors(kind: type[ServiceError] = ServiceError) -> Iterator[ServiceError]:
    """Yield one error of each class."""
    for each in kind.__subclasses__():
        yield each("")
        yield from _errors(each)
