"""`response_format`: the form that an answer has to have."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from service.api.invalid import naming, native
from service.api.protocols.nulls import NullsLeftOut
from service.errors import InvalidRequest
from service.schemas import Grammar

FORM_EXAMPLE = {
    "type": "json_schema",
    "json_schema": {
        "name": "person",
        "schema": {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0}},
            "required": ["name", "age"],
            "additionalProperties": False,
        },
    },
}


class NamedSchema(NullsLeftOut):
    """A JSON schema; whether it is said to be strict or not, it is kept."""

    model_config = ConfigDict(serialize_by_alias=True)

    name: str | None = None
    schema_: dict[str, Any] = Field({"type": "object"}, alias="schema")

    @model_validator(mode="before")
    @classmethod
    def _has_its_schema_inside(cls, given: Any) -> Any:
        if isinstance(given, dict) and "schema" not in given and not given.keys() <= {"name", "description", "strict"}:
            raise PydanticCustomError("outside", "this has fields of a schema; put the schema itself into `schema`")
        return given


class ResponseFormat(BaseModel):
    """Any text, any JSON object, JSON that a schema describes, or what a regular expression matches."""

    model_config = ConfigDict(serialize_by_alias=True)

    type: Literal["text", "json_object", "json_schema", "json", "regex"] = Field(
        description="the last two are those of Hugging Face's client, with a value"
    )
    json_schema: NamedSchema | None = None
    value: dict[str, Any] | str | None = Field(
        None, description="the schema, or the regular expression, as Hugging Face's client has it"
    )
    schema_: dict[str, Any] | None = Field(None, alias="schema", description="the same, as llama.cpp has it")

    def grammar(self) -> Grammar | None:
        """Return it in the task's words, none for any text; raises `InvalidRequest`."""
        if self.type == "text":
            return None
        if (self.type == "regex") != isinstance(self.value, str):
            raise InvalidRequest("response_format: the type regex has a text as value, others none", "response_format")
        if isinstance(self.value, str):
            with naming(regex="response_format.value"):
                return native(Grammar, regex=self.value)
        beside = self.schema_ if self.value is None else self.value
        if self.type == "json" and beside is None:
            raise InvalidRequest("response_format has the type json, but no value", "response_format")
        if self.type == "json_object":
            if self.json_schema is not None:
                raise InvalidRequest(
                    "response_format has a json_schema, which goes with the type json_schema", "response_format"
                )
            return Grammar(json_schema=beside or {"type": "object"})
        if self.json_schema is None and beside is None:
            raise InvalidRequest("response_format has the type json_schema, but no json_schema", "response_format")
        return Grammar(json_schema=beside if self.json_schema is None else self.json_schema.schema_)
