"""Chat templates: a conversation as the one text that a model was trained to continue."""

from __future__ import annotations

from pydantic import Field

from model.package.part import Part


class ChatTemplate(Part):
    """A template in Jinja's language, as tokenizers of Hugging Face's format carry it, and the tokens that it names."""

    source: str = Field(max_length=262_144)
    tokens: dict[str, str] = Field({}, description="what the template knows as bos_token, eos_token and the like")
