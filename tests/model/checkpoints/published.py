"""The config.json of published decoders, as their files have it."""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {"initializer_range": 0.02, "torch_dtype": "bfloat16", "use_cache": True}

PUBLISHED: dict[str, dict[str, Any]] = {
    "llama-3.2-1b": {
        **COMMON,
        **{"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0},
        **{"bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu"},
        **{"hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": False},
        **{"model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8},
        **{"pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": True},
        "rope_scaling": {
            **{"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3"},
            "original_max_position_embeddings": 8192,
        },
        **{"transformers_version": "4.45.0.dev0", "vocab_size": 128256},
    },
    "smollm2-135m": {
        **COMMON,
        **{"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0},
        **{"bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041},
        **{"intermediate_size": 1536, "is_llama_config": True, "max_position_embeddings": 8192, "mlp_bias": False},
        **{"model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3},
        **{"pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": False},
        **{"rope_scaling": None, "rope_theta": 100000, "tie_word_embeddings": True, "vocab_size": 49152},
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
    },
    "qwen2.5-0.5b": {
        **COMMON,
        **{"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643},
        **{"eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "intermediate_size": 4864},
        **{"max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2", "num_hidden_layers": 24},
        **{"num_attention_heads": 14, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0},
        **{"sliding_window": 32768, "tie_word_embeddings": True, "use_mrope": False, "use_sliding_window": False},
        "vocab_size": 151936,
    },
    "qwen3-0.6b": {
        **COMMON,
        **{"architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "head_dim": 128},
        **{"bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 1024},
        **{"intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28},
        **{"model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8},
        **{"rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None},
        **{"tie_word_embeddings": True, "use_sliding_window": False, "vocab_size": 151936},
    },
    "gemma-3-270m": {
        **COMMON,
        **{"architectures": ["Gemma3ForCausalLM"], "_sliding_window_pattern": 6, "attention_bias": False},
        **{"attention_dropout": 0.0, "attn_logit_softcapping": None, "bos_token_id": 2, "eos_token_id": 1},
        **{"final_logit_softcapping": None, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh"},
        **{"hidden_size": 640, "intermediate_size": 2048, "max_position_embeddings": 32768},
        **{"layer_types": [*["sliding_attention"] * 5, "full_attention"] * 3, "model_type": "gemma3_text"},
        **{"num_attention_heads": 4, "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0},
        **{"query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0},
        **{"rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": 512},
        **{"use_bidirectional_attention": False, "vocab_size": 262144},
    },
    "gemma-3-1b": {
        **COMMON,
        **{"architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0},
        **{"attn_logit_softcapping": None, "bos_token_id": 2, "cache_implementation": "hybrid"},
        **{"eos_token_id": [1, 106], "final_logit_softcapping": None, "head_dim": 256, "hidden_size": 1152},
        **{"hidden_activation": "gelu_pytorch_tanh", "intermediate_size": 6912, "max_position_embeddings": 32768},
        **{"model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1},
        **{"pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 1000000},
        **{"rope_local_base_freq": 10000, "rope_scaling": None, "sliding_window": 512, "sliding_window_pattern": 6},
        "vocab_size": 262144,
    },
    "gpt2": {
        **{"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1},
        **{"bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02},
        **{"layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12},
        **{"n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None},
        **{"summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index"},
        **{"summary_use_proj": True, "task_specific_params": {"text-generation": {"do_sample": True}}},
        "vocab_size": 50257,
    },
    "tinystories-33m": {
        **{"activation_function": "gelu_new", "architectures": ["GPTNeoForCausalLM"], "attention_dropout": 0},
        **{"attention_layers": ["global", "local"] * 2, "attention_types": [[["global", "local"], 2]]},
        **{"bos_token_id": 50256, "embed_dropout": 0, "eos_token_id": 50256, "gradient_checkpointing": False},
        **{"hidden_size": 768, "initializer_range": 0.02, "intermediate_size": None, "layer_norm_epsilon": 1e-05},
        **{"max_position_embeddings": 2048, "model_type": "gpt_neo", "num_heads": 16, "num_layers": 4},
        **{"resid_dropout": 0, "summary_activation": None, "summary_first_dropout": 0.1, "vocab_size": 50257},
        **{"summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True, "window_size": 256},
    },
}
PUBLISHED["opt-125m"] = {
    **{"_remove_final_layer_norm": False, "activation_dropout": 0.0, "activation_function": "relu"},
    **{"architectures": ["OPTForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 2, "dropout": 0.1},
    **{"do_layer_norm_before": True, "eos_token_id": 2, "ffn_dim": 3072, "hidden_size": 768, "init_std": 0.02},
    **{"layerdrop": 0.0, "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 12},
    **{"num_hidden_layers": 12, "pad_token_id": 1, "prefix": "</s>", "torch_dtype": "float16"},
    **{"use_cache": True, "vocab_size": 50272, "word_embed_proj_dim": 768},
}
PUBLISHED["pythia-160m"] = {
    **{"architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu"},
    **{"hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05},
    **{"max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 12, "rotary_pct": 0.25},
    **{"num_hidden_layers": 12, "rotary_emb_base": 10000, "tie_word_embeddings": False, "torch_dtype": "float16"},
    **{"use_cache": True, "use_parallel_residual": True, "vocab_size": 50304},
}
PUBLISHED["bloom-560m"] = {
    **{"apply_residual_connection_post_layernorm": False, "architectures": ["BloomForCausalLM"]},
    **{"attention_dropout": 0.0, "attention_softmax_in_fp32": True, "bias_dropout_fusion": True, "bos_token_id": 1},
    **{"eos_token_id": 2, "hidden_dropout": 0.0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05},
    **{"masked_softmax_fusion": True, "model_type": "bloom", "n_embed": 1024, "n_inner": None, "n_layer": 24},
    **{"num_attention_heads": 16, "offset_alibi": 100, "pad_token_id": 3, "pretraining_tp": 1, "seq_length": 2048},
    **{"skip_bias_add": True, "skip_bias_add_qkv": False, "torch_dtype": "float16", "unk_token_id": 0},
    **{"use_cache": True, "vocab_size": 250880},
}
PUBLISHED["distilgpt2"] = {**PUBLISHED["gpt2"], "_num_labels": 1, "n_layer": 6}
LLAMAS = [name for name in PUBLISHED if "rms_norm_eps" in PUBLISHED[name]]
