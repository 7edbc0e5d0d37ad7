"""Bodies of others' protocols, whose clients write null for what they leave out."""

from __future__ import annotations

from pydantic import BaseModel, model_validator


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
