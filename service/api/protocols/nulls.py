"""Bodies of others' protocols, whose clients write null for what they leave out, and answers that have nulls."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from service.schemas import Response


def refused(value: object) -> object:
    """Refuse what asks for something that is not done."""
    if value:
        raise PydanticCustomError("not_done", "this is not done here; leave it out")
    return None


NotDone = Annotated[Any, BeforeValidator(refused)]  # a field that would change the answer


class NullsLeftOut(BaseModel):
    """A body in which a null is as good as nothing, and so is a model without a name."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: object) -> object:
        if not isinstance(body, dict):
            return body
        return {
            name: value for name, value in body.items() if value is not None and not (name == "model" and value == "")
        }


class WithNulls(Response):
    """A part of an answer in which some fields without a value are null, as clients expect; others are left out."""

    may_be_null: ClassVar[tuple[str, ...]]

    @model_serializer(mode="wrap")
    def _with_nulls(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name in self.may_be_null:
            if self.is_null(name):
                written.setdefault(name, None)
        return written

    def is_null(self, name: str) -> bool:
        """Tell whether a field is null: it has no value, and this was said of it."""
        return name in self.may_be_null and name in self.model_fields_set and getattr(self, name) is None
