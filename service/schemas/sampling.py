"""What a request may say of how choices are drawn."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from service.schemas.decoding import DecodingRequest
from service.schemas.grammar import Grammar
from service.schemas.request import MAX_INT32, Ids, few_entries

StopText = Annotated[str, Field(max_length=256)]
Bias = Annotated[float, Field(ge=-100, le=100)]
MAX_STOP_IDS = 64
MAX_BIASES = 300


class SamplingRequest(DecodingRequest):
    """A request for choices, drawn or searched. Defaults are the package's, and ours where it has none."""

    max_tokens: int | None = Field(
        None,
        ge=0,
        le=MAX_INT32,
        description="most tokens to generate for each choice; 128, and in a conversation as many as there is room for; "
        "with echo there may be none",
    )
    temperature: float | None = Field(None, ge=0, le=10, description="0 is greedy; 0.8")
    top_k: int | None = Field(None, ge=0, le=1_000_000, description="sample from the k likeliest tokens; 0 is all")
    top_p: float | None = Field(
        None, gt=0, le=1, description="sample from the fewest tokens whose probabilities reach p"
    )
    min_p: float | None = Field(None, ge=0, le=1, description="leave out tokens less likely than p times the likeliest")
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="of tokens in the output")
    frequency_penalty: float = Field(
        0.0, ge=-2, le=2, description="of tokens in the output, as often as they are there"
    )
    logit_bias: Annotated[dict[int, Bias], few_entries(MAX_BIASES)] = Field(
        {}, max_length=MAX_BIASES, description="token id → bias"
    )
    stop: StopText | Annotated[list[StopText], Field(max_length=16, fail_fast=True)] | None = Field(
        None, description="texts that end a choice, in a search each hypothesis; they are left out of it"
    )
    stop_ids: Ids = Field(
        [], max_length=MAX_STOP_IDS, description="token ids that end a choice, beside the model's own"
    )
    ignore_eos: bool = Field(False, description="go on to max_tokens: the model's own ends may not come")
    seed: int | None = Field(None, ge=0, lt=2**63, description="same seed, same text")
    n: int = Field(1, ge=1, le=MAX_INT32, description="choices for each prompt")
    best_of: int | None = Field(
        None,
        ge=1,
        le=MAX_INT32,
        description="draw so many and return the n whose tokens are likeliest on average, best first",
    )
    beam_size: int | None = Field(
        None,
        ge=1,
        le=MAX_INT32,
        description="more than 1: beam search instead of sampling, whatever the temperature; a package's own beams "
        "give way to a request that says how to sample",
    )
    grammar: Grammar | None = Field(
        None,
        description="the form that each choice has to have; its finish reason is stop where it has it to its end, "
        "length where it was cut, grammar where the model's tokens cannot go on with it",
    )
