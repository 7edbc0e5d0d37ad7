"""Texts as tokens, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from service.schemas.request import Ids, ListsOfIds, Request, Response, Text, Texts, as_lists_of_ids


class TokenizeRequest(Request):
    """Texts to turn into tokens."""

    inputs: ClassVar = "input"

    input: Text | Texts = Field(description="a text, or a list of texts", examples=["The dog was good."])
    add_special_tokens: bool = Field(True, description="with the tokens that the tokenizer adds to a text")


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and the characters [start, end) of the text that it stands for; one that is added stands for none."""

    id: int
    token: str
    start: int
    end: int
    special: bool


class TokenizeResponse(Response):
    """The tokens of each text."""

    model: str
    results: list[list[Token]]


class DetokenizeRequest(Request):
    """Token ids to turn into text."""

    inputs: ClassVar = "ids"

    ids: Ids | ListsOfIds = Field(description="token ids of one text, or lists of them", examples=[[5, 6, 7]])
    skip_special_tokens: bool = Field(True, description="leave special tokens out of the text")

    def count_inputs(self) -> int:
        """Return how many texts it asks for."""
        return len(self.lists())

    def lists(self) -> list[list[int]]:
        """Return the ids of each text."""
        return as_lists_of_ids(self.ids) or [[]]


class DetokenizeResponse(Response):
    """The text of each list of ids."""

    model: str
    results: list[str]
