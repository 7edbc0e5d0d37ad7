"""The config.json of published encoders, as their files have it."""

from __future__ import annotations

from typing import Any

BERT: dict[str, Any] = {
    **{"attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768},
    **{"initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 512},
    **{"num_attention_heads": 12, "num_hidden_layers": 12},
}
ROBERTA: dict[str, Any] = {
    **BERT,
    **{"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "layer_norm_eps": 1e-05},
    **{"max_position_embeddings": 514, "type_vocab_size": 1},
}
MODERNBERT: dict[str, Any] = {
    **{"architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0},
    **{"bos_token_id": 50281, "classifier_activation": "gelu", "classifier_bias": False, "classifier_dropout": 0.0},
    **{"classifier_pooling": "mean", "cls_token_id": 50281, "decoder_bias": True, "deterministic_flash_attn": False},
    **{"embedding_dropout": 0.0, "eos_token_id": 50282, "global_attn_every_n_layers": 3},
    **{"global_rope_theta": 160000.0, "gradient_checkpointing": False, "hidden_activation": "gelu"},
    **{"initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "layer_norm_eps": 1e-05, "local_attention": 128},
    **{"local_rope_theta": 10000.0, "max_position_embeddings": 8192, "mlp_bias": False, "mlp_dropout": 0.0},
    **{"model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-05, "pad_token_id": 50283},
    **{"position_embedding_type": "absolute", "sep_token_id": 50282, "tie_word_embeddings": True},
    **{"torch_dtype": "float32", "transformers_version": "4.47.0.dev0", "vocab_size": 50368},
}
DEBERTA: dict[str, Any] = {
    **BERT,
    **{"architectures": ["DebertaV2ForMaskedLM"], "layer_norm_eps": 1e-07, "max_relative_positions": -1},
    **{"model_type": "deberta-v2", "norm_rel_ebd": "layer_norm", "pad_token_id": 0, "pooler_dropout": 0},
    **{"pooler_hidden_act": "gelu", "pooler_hidden_size": 768, "pos_att_type": "p2c|c2p"},
    **{"position_biased_input": False, "position_buckets": 256, "relative_attention": True, "share_att_key": True},
    **{"type_vocab_size": 0, "vocab_size": 128100},
}

# The fields of its own code, as it was published; files of sentence-transformers name no class.
NOMIC: dict[str, Any] = {
    **{"activation_function": "swiglu", "architectures": ["SentenceTransformer"], "attn_pdrop": 0.0},
    **{"auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"}},
    **{"bos_token_id": None, "causal": False, "dense_seq_output": True, "embd_pdrop": 0.0, "eos_token_id": None},
    **{"fused_bias_fc": True, "fused_dropout_add_ln": True, "initializer_range": 0.02, "layer_norm_epsilon": 1e-12},
    **{"max_trained_positions": 2048, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "model_type": "nomic_bert"},
    **{"n_embd": 768, "n_head": 12, "n_inner": 3072, "n_layer": 12, "n_positions": 8192, "parallel_block": False},
    **{"pad_vocab_size_multiple": 64, "parallel_block_tied_norm": False, "prenorm": False, "qkv_proj_bias": False},
    **{"reorder_and_upcast_attn": False, "resid_pdrop": 0.0, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0},
    **{"rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None},
    **{"scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True, "summary_activation": None},
    **{"summary_first_dropout": 0.0, "summary_proj_to_labels": True, "summary_type": "cls_index"},
    **{"summary_use_proj": True, "torch_dtype": "float32", "type_vocab_size": 2, "use_cache": True},
    **{"use_flash_attn": True, "use_rms_norm": False, "use_xentropy": True, "vocab_size": 30528},
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "distilbert": {
        **{"activation": "gelu", "architectures": ["DistilBertForMaskedLM"], "attention_dropout": 0.1, "dim": 768},
        **{"dropout": 0.1, "hidden_dim": 3072, "initializer_range": 0.02, "max_position_embeddings": 512},
        **{"model_type": "distilbert", "n_heads": 12, "n_layers": 6, "pad_token_id": 0, "qa_dropout": 0.1},
        **{"seq_classif_dropout": 0.2, "sinusoidal_pos_embds": False, "tie_weights_": True, "vocab_size": 30522},
    },
    "roberta-base": {**ROBERTA, "architectures": ["RobertaForMaskedLM"], "model_type": "roberta", "vocab_size": 50265},
    "xlm-roberta-base": {
        **ROBERTA,
        **{"architectures": ["XLMRobertaForMaskedLM"], "model_type": "xlm-roberta", "output_past": True},
        **{"position_embedding_type": "absolute", "use_cache": True, "vocab_size": 250002},
    },
    "camembert-base": {
        **ROBERTA,
        **{"architectures": ["CamembertForMaskedLM"], "bos_token_id": 5, "eos_token_id": 6, "output_past": True},
        **{"model_type": "camembert", "vocab_size": 32005},
    },
    "modernbert-base": {
        **MODERNBERT,
        **{"hidden_size": 768, "intermediate_size": 1152, "num_attention_heads": 12, "num_hidden_layers": 22},
    },
    "modernbert-large": {
        **MODERNBERT,
        **{"hidden_size": 1024, "intermediate_size": 2624, "num_attention_heads": 16, "num_hidden_layers": 28},
    },
    "mpnet-base": {
        **BERT,
        **{"architectures": ["MPNetForMaskedLM"], "bos_token_id": 0, "eos_token_id": 2, "layer_norm_eps": 1e-05},
        **{"max_position_embeddings": 514, "model_type": "mpnet", "pad_token_id": 1, "vocab_size": 30527},
        "relative_attention_num_buckets": 32,
    },
    "electra-small-generator": {
        **BERT,
        **{"architectures": ["ElectraForMaskedLM"], "embedding_size": 128, "hidden_size": 256, "model_type": "electra"},
        **{"intermediate_size": 1024, "layer_norm_eps": 1e-12, "num_attention_heads": 4, "pad_token_id": 0},
        **{"generator_size": "0.25", "summary_activation": "gelu", "summary_last_dropout": 0.1},
        **{"summary_type": "first", "summary_use_proj": True, "type_vocab_size": 2, "vocab_size": 30522},
    },
    "nomic-embed-text-v1.5": NOMIC,
    "embeddinggemma-300m": {
        **{"_sliding_window_pattern": 6, "architectures": ["SentenceTransformer"], "attention_bias": False},
        **{"attention_dropout": 0.0, "attn_logit_softcapping": None, "bos_token_id": 2, "dtype": "float32"},
        **{"eos_token_id": 1, "final_logit_softcapping": None, "head_dim": 256, "hidden_size": 768},
        **{"hidden_activation": "gelu_pytorch_tanh", "initializer_range": 0.02, "intermediate_size": 1152},
        **{"layer_types": [*["sliding_attention"] * 5, "full_attention"] * 4, "max_position_embeddings": 2048},
        **{"model_type": "gemma3_text", "num_attention_heads": 3, "num_hidden_layers": 24, "num_key_value_heads": 1},
        **{"pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0},
        **{"rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": 512, "use_cache": True},
        **{"use_bidirectional_attention": True, "vocab_size": 262144},
    },
    "albert-base": {
        **{"architectures": ["AlbertForMaskedLM"], "attention_probs_dropout_prob": 0, "bos_token_id": 2},
        **{"classifier_dropout_prob": 0.1, "down_scale_factor": 1, "embedding_size": 128, "eos_token_id": 3},
        **{"gap_size": 0, "hidden_act": "gelu_new", "hidden_dropout_prob": 0, "hidden_size": 768},
        **{"initializer_range": 0.02, "inner_group_num": 1, "intermediate_size": 3072, "layer_norm_eps": 1e-12},
        **{"max_position_embeddings": 512, "model_type": "albert", "net_structure_type": 0},
        **{"num_attention_heads": 12, "num_hidden_groups": 1, "num_hidden_layers": 12, "num_memory_blocks": 0},
        **{"pad_token_id": 0, "type_vocab_size": 2, "vocab_size": 30000},
    },
    "gte-base-en-v1.5": {
        **BERT,
        **{"architectures": ["SentenceTransformer"], "attention_probs_dropout_prob": 0.0, "classifier_dropout": None},
        **{"auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"}, "id2label": {"0": "LABEL_0"}},
        **{"label2id": {"LABEL_0": 0}, "layer_norm_eps": 1e-12, "layer_norm_type": "layer_norm"},
        **{"logn_attention_clip1": False, "logn_attention_scale": False, "max_position_embeddings": 8192},
        **{"model_type": "new", "pack_qkv": True, "pad_token_id": 0, "position_embedding_type": "rope"},
        **{"rope_scaling": {"factor": 2.0, "type": "ntk"}, "rope_theta": 500000, "type_vocab_size": 0},
        **{"unpad_inputs": False, "use_memory_efficient_attention": False, "vocab_size": 30528},
    },
    "jina-embeddings-v2-base-en": {
        **{**BERT, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 8192},
        **{"architectures": ["SentenceTransformer"], "attn_implementation": "torch", "classifier_dropout": None},
        **{"auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"}},
        **{"emb_pooler": "mean", "feed_forward_type": "geglu", "gradient_checkpointing": False},
        **{"layer_norm_eps": 1e-12, "model_max_length": 8192, "model_type": "bert", "pad_token_id": 0},
        **{"position_embedding_type": "alibi", "type_vocab_size": 2, "use_cache": True, "vocab_size": 30528},
    },
    "deberta-v3-small": {**DEBERTA, "num_hidden_layers": 6},
    "deberta-v3-base": DEBERTA,
}
# As transformers 2.3 to 2.5 wrote files: with what outputs are chosen by, an encoder's, too.
BERT_OF_EARLY_2020: dict[str, Any] = {
    **BERT,
    **{"architectures": ["BertForSequenceClassification"], "bos_token_id": 0, "do_sample": False, "eos_token_ids": 0},
    **{"finetuning_task": None, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "is_decoder": False},
    **{"label2id": {"LABEL_0": 0, "LABEL_1": 1}, "layer_norm_eps": 1e-12, "length_penalty": 1.0, "max_length": 20},
    **{"model_type": "bert", "num_beams": 1, "num_labels": 2, "num_return_sequences": 1, "output_attentions": False},
    **{"output_hidden_states": False, "output_past": True, "pad_token_id": 0, "pruned_heads": {}},
    **{"repetition_penalty": 1.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0, "torchscript": False},
    **{"type_vocab_size": 2, "use_bfloat16": False, "vocab_size": 30522},
}
# With heads that were fine-tuned on the multilingual BERT, whose file has fields of a pooler that nobody computes.
MULTILINGUAL_BERT: dict[str, Any] = {
    **BERT,
    **{"architectures": ["BertForMaskedLM"], "directionality": "bidi", "layer_norm_eps": 1e-12, "model_type": "bert"},
    **{"pad_token_id": 0, "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3},
    **{"pooler_size_per_head": 128, "pooler_type": "first_token_transform", "type_vocab_size": 2},
    **{"vocab_size": 119547},
}
