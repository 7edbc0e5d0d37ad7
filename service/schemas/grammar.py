"""A form that an output has to have."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from service.schemas.request import Text

MAX_CHARACTERS = 65_536  # of a grammar as it is compiled: a schema as JSON, all choices
MAX_CHOICES = 1024


class Grammar(BaseModel):
    """One of four ways to say which texts an output may be."""

    model_config = ConfigDict(extra="forbid")

    json_schema: dict[str, Any] | None = Field(
        None,
        description="a JSON schema; {} is any value; objects have their properties in the schema's order, and no "
        "others unless it has additionalProperties or is put together of several schemas",
    )
    regex: Text | None = Field(
        None, max_length=MAX_CHARACTERS, description="a regular expression in Rust's syntax, of the whole output"
    )
    choice: Annotated[list[Text], Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)] | None = Field(
        None, description="texts of which the output is one"
    )
    lark: Text | None = Field(
        None,
        max_length=MAX_CHARACTERS,
        description="a context-free grammar in llguidance's form of Lark; begins at start",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise PydanticCustomError(
                "grammar", "Grammar should have one of json_schema, regex, choice and lark, not {n}", {"n": len(given)}
            )
        return self
