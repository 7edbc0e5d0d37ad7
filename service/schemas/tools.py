"""Calls of tools."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from service.schemas.request import Response, Text


class NamedTool(BaseModel):
    """One of the tools, which the model is to call."""

    model_config = ConfigDict(extra="forbid")

    name: Text


ToolChoice = Literal["auto", "required"] | NamedTool


class ToolCall(Response):
    """A tool that the model calls."""

    name: str
    arguments: str = Field(description="an object as JSON; cut where the choice was")


class ToolCallPiece(Response):
    """A piece of a call; the first one has the name."""

    index: int = Field(description="of the call, among those of its choice")
    name: str | None = None
    arguments: str
