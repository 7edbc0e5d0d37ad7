"""The fields by which transformers chooses outputs: which are read, which change no answer, and which are refused."""

from __future__ import annotations

from collections.abc import Mapping

# What is not supported, with the values that change nothing; None and what is empty never do.
ONLY: Mapping[str, tuple[object, ...]] = {
    "constraints": (),
    "diversity_penalty": (0,),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "frequency_penalty": (0,),
    "guidance_scale": (1,),
    "low_memory": (False,),
    "max_time": (),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0,),
    "presence_penalty": (0,),
    "sequence_bias": (),
    "token_healing": (False,),
    "top_h": (),
    "typical_p": (1,),
    "watermarking_config": (),
}
# What only tokens that are drawn are chosen by.
OF_DRAWN = frozenset({"epsilon_cutoff", "eta_cutoff", "top_h", "typical_p"})
# What says where, how fast, and beside what else the same answer is computed.
WITHOUT_EFFECT = frozenset(
    {
        *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "return_legacy_cache"),
        *("output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate"),
        *("remove_invalid_values", "transformers_version", "_from_model_config", "_commit_hash"),
        *("is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"),
        *("prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit", "assistant_lookbehind"),
        *("target_lookbehind", "assistant_ensemble_weight", "speculation_type", "use_mtp"),
        *(
            "_attn_implementation",
            "compile_config",
            "disable_compile",
            "continuous_batching_config",
            "prefill_chunk_size",
        ),
    }
)
RENAMED: Mapping[str, str] = {
    "forced_bos_token_id": "forced_start",
    "suppress_tokens": "suppress_ids",
    "begin_suppress_tokens": "begin_suppress_ids",
    "bad_words_ids": "bad_words",
    "renormalize_logits": "renormalize",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "num_beams": "beam_size",
    "length_penalty": "length_penalty",
}
ORIGINAL: Mapping[str, str] = {
    **{ours: theirs for theirs, ours in RENAMED.items()},
    **{"stop": "stop_strings", "forced_end": "forced_eos_token_id"},
}
# What a field of theirs is made of where a checkpoint does not state it.
MADE_OF: Mapping[str, str] = {
    "forced_bos_token_id": "bos_token_id",
    "max_new_tokens": "max_length",
    "min_new_tokens": "min_length",
}
READ = frozenset(
    {
        *RENAMED,
        *("do_sample", "temperature", "top_k", "max_length", "min_length", "stop_strings", "early_stopping"),
        "force_bos_token_to_be_generated",
        *("forced_eos_token_id", "eos_token_id", "bos_token_id", "pad_token_id", "decoder_start_token_id"),
    }
)
OF_OUTPUTS = READ | WITHOUT_EFFECT | ONLY.keys()  # of a config.json they are looked at here, and nowhere else
# transformers' own, which hold where a checkpoint says nothing.
DEFAULT_TOP_K = 50
DEFAULT_MAX_LENGTH = 20  # which files of versions up to 4 may have although nobody chose it
FIRST_WITHOUT_DEFAULTS = 5  # version whose files have a length only if somebody chose it
