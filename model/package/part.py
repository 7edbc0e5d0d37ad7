"""What all parts of a manifest have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

TokenId = Annotated[int, Field(ge=0)]
Side = Literal["left", "right"]  # of a text: its beginning, its end


class Part(BaseModel):
    """A part of a manifest: read-only, and without fields that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid")
