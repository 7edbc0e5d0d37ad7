"""BERT with a classification head (Devlin et al. 2019)."""

from __future__ import annotations

from model.checkpoints.family import Family, HFConfig, Names, activation, norms_and_biases, require
from model.config import AttentionConfig, EmbeddingsConfig, FeedForwardConfig, NormConfig, TransformerConfig
from model.sizes import default_head


def to_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a BERT for classification."""
    require(config, position_embedding_type="absolute")
    return TransformerConfig(
        architecture="encoder",
        vocab_size=config["vocab_size"],
        d_model=config["hidden_size"],
        attention=AttentionConfig(config["num_attention_heads"]),
        feed_forward=FeedForwardConfig(config["intermediate_size"], activation(config["hidden_act"])),
        num_encoder_layers=config["num_hidden_layers"],
        max_positions=config["max_position_embeddings"],
        norm=NormConfig(placement="post", epsilon=config["layer_norm_eps"]),
        embeddings=EmbeddingsConfig(norm=True, segments=config["type_vocab_size"]),
        head=default_head("classify", len(config["id2label"] or (0, 1))),
        dropout=config["hidden_dropout_prob"],
    )


DEFAULTS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "id2label": None,
    "tie_word_embeddings": True,
}

LAYER, BLOCK = "encoder.layer.{}", "encoder.blocks.{}"

NAMES: Names = {
    "embeddings.word_embeddings.weight": "embeddings.words.weight",
    "embeddings.position_embeddings.weight": "embeddings.positions.weight",
    "embeddings.token_type_embeddings.weight": "embeddings.segments.weight",
    **norms_and_biases(
        {
            "embeddings.LayerNorm": "embeddings.norm",
            f"{LAYER}.attention.self.query": f"{BLOCK}.self_attention.query",
            f"{LAYER}.attention.self.key": f"{BLOCK}.self_attention.key",
            f"{LAYER}.attention.self.value": f"{BLOCK}.self_attention.value",
            f"{LAYER}.attention.output.dense": f"{BLOCK}.self_attention.output",
            f"{LAYER}.attention.output.LayerNorm": f"{BLOCK}.self_attention_residual.norm",
            f"{LAYER}.intermediate.dense": f"{BLOCK}.feed_forward.expand",
            f"{LAYER}.output.dense": f"{BLOCK}.feed_forward.contract",
            f"{LAYER}.output.LayerNorm": f"{BLOCK}.feed_forward_residual.norm",
            "pooler.dense": "head.transform.dense",
            "classifier": "head.output",
        }
    ),
}

BERT = Family(to_config, NAMES, DEFAULTS, prefix="bert.", computed=frozenset({"embeddings.position_ids"}))
