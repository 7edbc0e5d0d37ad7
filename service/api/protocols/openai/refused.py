"""Fields that change an answer and that are not done here, by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.errors import InvalidRequest

ASKS_NOTHING: tuple[Any, ...] = (False, [], {}, "", "none", "auto")
# Fields that change an answer and that we do not do, with what may be said in them all the same.
REFUSED: Mapping[str, tuple[Any, ...]] = {
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "regex": (),
    "stop_regex": (),
    "ebnf": (),
    "structural_tag": (),
    "suffix": (),
    "prompt_embeds": (),
    "use_beam_search": (),
    "tools": (),
    "tool_choice": (),
    "functions": (),
    "function_call": (),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "moderation": (),
    "reasoning_effort": (),
    # Of conversations these are fields of their own.
    "enable_thinking": (),
    "reasoning": (),
    "think": (),
    "thinking": ({"type": "disabled"},),
    "thinking_budget": (),
    "thinking_token_budget": (),
    "verbosity": ("medium",),
    "continue_final_message": (),
    "documents": (),
    "chat_template": (),
    "echo": (),  # of completions it is a field of its own
    "prompt_logprobs": (),
    "allowed_token_ids": (),
    "bad_words": (),
    "include_stop_str_in_output": (),
    "truncate_prompt_tokens": (),
    "return_tokens_as_token_ids": (),
    "json_schema": (),
    "repeat_penalty": (1, 1.0),
    "typical_p": (1, 1.0),
    "mirostat": (0,),
    "mirostat_mode": (0,),
    "dynatemp_range": (0, 0.0),
    "top_n_sigma": (-1, -1.0, 0, 0.0),
    "dry_multiplier": (0, 0.0),
    "xtc_probability": (0, 0.0),
    "n_predict": (-1,),
    "max_new_tokens": (),
    "max_length": (),
    "min_new_tokens": (0,),
    "num_beams": (1,),
    "num_return_sequences": (1,),
    "stop_sequences": (),
    "adapter_id": (),
    "lora": (),
    "lora_path": (),
    "logits_processors": (),
    "logprob_token_ids": (),
    "return_token_ids": (),
    "no_stop_trim": (),
    "custom_logit_processor": (),
    "return_hidden_states": (),
    "n_probs": (0,),
    "samplers": (),
    "t_max_predict_ms": (0,),
}
# The same of vectors, which are 32-bit numbers, the lowest byte first.
REFUSED_OF_VECTORS: Mapping[str, tuple[Any, ...]] = {
    "embed_dtype": ("float32",),
    "embedding_type": ("float",),
    "embedding_types": (["float"],),
    "encoding_type": ("float",),
    "endianness": ("little", "native"),
    "output_dimension": (),
    "output_dtype": ("float",),
    "return_multivector": (),
}
LIMITS = ("n_predict", "max_new_tokens", "max_length")  # some clients send the names that all servers have for it
TOOLS = {"tools": "tool_choice", "functions": "function_call"}  # which need not be there where none is to be chosen
# Fields that are refused only where they say no.
ALWAYS = ("skip_special_tokens", "spaces_between_special_tokens", "include_reasoning")
# Where what is refused can be had instead.
ELSEWHERE = {
    **dict.fromkeys(("tools", "tool_choice"), "; they go with messages to /v1/chat/completions"),
    **dict.fromkeys(("functions", "function_call"), "; send tools and tool_choice with messages instead"),
    **dict.fromkeys(("regex", "guided_regex"), "; send grammar: {regex: …} instead"),
    **dict.fromkeys(LIMITS, "; send max_tokens instead"),
    "min_new_tokens": "; send min_tokens instead",
    "num_beams": "; send beam_size instead",
    "num_return_sequences": "; send n instead",
    "stop_sequences": "; send stop instead",
    "n_probs": "; send logprobs instead",
    **dict.fromkeys(
        ("enable_thinking", "reasoning", "think", "thinking"), "; it goes with messages to /v1/chat/completions"
    ),
    "output_dimension": "; send dimensions instead",
    "embedding_type": "; send encoding_format instead",
}


def check(sent: Mapping[str, Any], refused: Mapping[str, tuple[Any, ...]]) -> None:
    """Refuse fields that ask for what is not done here; raises `InvalidRequest`."""
    for name, harmless in refused.items():
        if name in sent and not is_among(sent[name], (*harmless, *ASKS_NOTHING)):
            raise InvalidRequest(f"{name} is not supported; leave it out{ELSEWHERE.get(name, '')}", name)


def is_among(value: object, values: Sequence[object]) -> bool:
    """Tell whether a value is one of these: 0 is not false, as of `prompt_logprobs` it asks for something."""
    return any(type(value) is type(each) and value == each for each in values)
