"""How busy a node is."""

from __future__ import annotations

from pydantic import Field

from service.schemas.request import Response


class LiveModel(Response):
    """How busy a model's replicas on this node are."""

    running: int = Field(0, description="sequences in the running batch")
    waiting: int = Field(0, description="choices, beams, sentences and inputs that wait")
    slots_used: int = Field(0, description="rows of the KV cache held or promised")
    slots: int = Field(0, description="rows of the KV cache; 0 of a model without one")
    tokens: int = Field(0, description="of prompts and decoded, counted from the start; the rate is for who asks twice")


class Live(Response):
    """How busy this node is, a second old at most."""

    at: float = Field(description="when it was so, in Unix time")
    node: str = Field(description="which node it is, as a word that says no more: another's counters are others")
    requests: int = Field(0, description="in progress, of those that ask a model")
    models: dict[str, LiveModel]
