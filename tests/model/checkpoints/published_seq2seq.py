"""The config.json of published encoder–decoders, as their files have it."""

from __future__ import annotations

from typing import Any

T5: dict[str, Any] = {
    **{"architectures": ["T5ForConditionalGeneration"], "d_kv": 64, "decoder_start_token_id": 0, "dropout_rate": 0.1},
    **{"eos_token_id": 1, "initializer_factor": 1.0, "is_encoder_decoder": True, "layer_norm_epsilon": 1e-06},
    **{"model_type": "t5", "n_positions": 512, "output_past": True, "pad_token_id": 0, "vocab_size": 32128},
    "relative_attention_num_buckets": 32,
}
T5_TASKS: dict[str, Any] = {
    "summarization": {
        **{"early_stopping": True, "length_penalty": 2.0, "max_length": 200, "min_length": 30, "num_beams": 4},
        **{"no_repeat_ngram_size": 3, "prefix": "summarize: "},
    },
    "translation_en_to_de": {
        **{"early_stopping": True, "max_length": 300, "num_beams": 4, "prefix": "translate English to German: "}
    },
}
BART: dict[str, Any] = {
    **{"activation_dropout": 0.1, "add_bias_logits": False, "attention_dropout": 0.1, "classif_dropout": 0.1},
    **{"activation_function": "gelu", "classifier_dropout": 0.0, "dropout": 0.1, "init_std": 0.02},
    **{"decoder_layerdrop": 0.0, "encoder_layerdrop": 0.0, "gradient_checkpointing": False, "use_cache": True},
    **{"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "decoder_start_token_id": 2, "forced_eos_token_id": 2},
    **{"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, "is_encoder_decoder": True},
    **{"label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}, "model_type": "bart", "normalize_before": False},
    **{"add_final_layer_norm": False, "normalize_embedding": True, "scale_embedding": False, "vocab_size": 50265},
    **{"max_position_embeddings": 1024, "early_stopping": True, "no_repeat_ngram_size": 3, "num_beams": 4},
}


def _sizes(d_model: int, heads: int, layers: int, d_ff: int) -> dict[str, Any]:
    return {
        **{"d_model": d_model, "num_hidden_layers": layers},
        **{f"{side}_attention_heads": heads for side in ("encoder", "decoder")},
        **{f"{side}_layers": layers for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": d_ff for side in ("encoder", "decoder")},
    }


PRE_NORM = {"add_final_layer_norm": True, "normalize_before": True, "scale_embedding": True}
MANY: dict[str, Any] = {  # M2M100, NLLB
    **_sizes(1024, 16, 12, 4096),
    **{"activation_dropout": 0.0, "activation_function": "relu", "attention_dropout": 0.1, "dropout": 0.1},
    **{"architectures": ["M2M100ForConditionalGeneration"], "decoder_layerdrop": 0.05, "encoder_layerdrop": 0.05},
    **{"bos_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1, "init_std": 0.02},
    **{"gradient_checkpointing": False, "is_encoder_decoder": True, "max_length": 200, "num_beams": 5},
    **{"early_stopping": True, "max_position_embeddings": 1024, "model_type": "m2m_100", "scale_embedding": True},
    **{"transformers_version": "4.4.0.dev0", "use_cache": True},
}

PUBLISHED: dict[str, dict[str, Any]] = {
    "t5-small": {**T5, "d_ff": 2048, "d_model": 512, "num_heads": 8, "num_layers": 6, "task_specific_params": T5_TASKS},
    "t5-base": {**T5, "d_ff": 3072, "d_model": 768, "num_heads": 12, "num_layers": 12},
    "flan-t5-small": {
        **T5,
        **{"d_ff": 1024, "d_model": 512, "dense_act_fn": "gelu_new", "feed_forward_proj": "gated-gelu"},
        **{"is_gated_act": True, "num_decoder_layers": 8, "num_heads": 6, "num_layers": 8, "use_cache": True},
        **{"relative_attention_max_distance": 128, "task_specific_params": T5_TASKS, "tie_word_embeddings": False},
    },
    "flan-t5-base": {
        **T5,
        **{"d_ff": 2048, "d_model": 768, "dense_act_fn": "gelu_new", "feed_forward_proj": "gated-gelu"},
        **{"is_gated_act": True, "num_decoder_layers": 12, "num_heads": 12, "num_layers": 12},
        **{"relative_attention_max_distance": 128, "tie_word_embeddings": False},
    },
    "mt5-small": {
        **T5,
        **{"architectures": ["MT5ForConditionalGeneration"], "d_ff": 1024, "d_model": 512, "model_type": "mt5"},
        **{"feed_forward_proj": "gated-gelu", "num_decoder_layers": 8, "num_heads": 6, "num_layers": 8},
        **{"tie_word_embeddings": False, "tokenizer_class": "T5Tokenizer", "vocab_size": 250112},
    },
    "opus-mt": {
        **BART,
        **_sizes(512, 8, 6, 2048),
        **{"_num_labels": 3, "activation_function": "swish", "architectures": ["MarianMTModel"]},
        **{"bad_words_ids": [[58100]], "bos_token_id": 0, "decoder_start_token_id": 58100, "eos_token_id": 0},
        **{"extra_pos_embeddings": 58101, "forced_eos_token_id": 0, "max_length": 512, "max_position_embeddings": 512},
        **{"force_bos_token_to_be_generated": False, "model_type": "marian", "normalize_embedding": False},
        **{"num_beams": 6, "pad_token_id": 58100, "scale_embedding": True, "static_position_embeddings": True},
        "vocab_size": 58101,
    },
    "bart-base": {
        **BART,
        **_sizes(768, 12, 6, 3072),
        **{"architectures": ["BartModel"], "forced_bos_token_id": 0},
        "task_specific_params": {"summarization": {"length_penalty": 1.0, "max_length": 128, "num_beams": 4}},
    },
    "bart-large": {**BART, **_sizes(1024, 16, 12, 4096), "architectures": ["BartModel"], "_num_labels": 3},
    "mbart-large-50": {
        **BART,
        **_sizes(1024, 16, 12, 4096),
        **PRE_NORM,
        **{"architectures": ["MBartForConditionalGeneration"], "model_type": "mbart", "output_past": True},
        **{"static_position_embeddings": False, "tokenizer_class": "MBart50Tokenizer", "vocab_size": 250054},
    },
    "m2m100-418m": {**MANY, "_name_or_path": "hf_models/m2m100_418M", "vocab_size": 128112},
    "nllb-200-distilled-600m": {**MANY, "tokenizer_class": "NllbTokenizer", "vocab_size": 256206},
    "pegasus-large": {
        **BART,
        **_sizes(1024, 16, 16, 4096),
        **PRE_NORM,
        **{"activation_function": "relu", "architectures": ["PegasusForConditionalGeneration"], "eos_token_id": 1},
        **{"decoder_start_token_id": 0, "extra_pos_embeddings": 1, "forced_eos_token_id": 1, "length_penalty": 0.8},
        **{"max_length": 256, "model_type": "pegasus", "normalize_embedding": False, "num_beams": 8, "pad_token_id": 0},
        **{"static_position_embeddings": True, "vocab_size": 96103},
        "task_specific_params": {
            "summarization_aeslc": {"length_penalty": 0.6, "max_length": 32, "max_position_embeddings": 512},
            "summarization_xsum": {"length_penalty": 0.8, "max_length": 64, "max_position_embeddings": 512},
        },
    },
}
