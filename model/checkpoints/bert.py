"""BERT (Devlin et al. 2019) with all its heads; sentence-transformers' MiniLM, E5, BGE and GTE are BERTs too."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from model.checkpoints.family import Family, HFConfig, Names, activation, norms_and_biases, require
from model.checkpoints.fields import field_names
from model.checkpoints.heads import head_kind, num_labels
from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
    HeadKind,
    NormConfig,
    TransformerConfig,
)

KINDS: tuple[HeadKind, ...] = ("classify", "tag", "answer", "fill", "embed")  # of heads


def bert_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a BERT."""
    require(config, position_embedding_type="absolute", is_decoder=False)
    return configure(config)


def configure(config: HFConfig, kinds: Collection[HeadKind] = KINDS) -> TransformerConfig:
    """Return our configuration of a BERT, or of what is one but for some parts, with a head of one of some kinds."""
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
        head=bert_head(config, kinds),
        dropout=config["hidden_dropout_prob"],
    )


def bert_head(config: HFConfig, kinds: Collection[HeadKind] = KINDS) -> HeadConfig:
    """Return BERT's head of the kind that a checkpoint has."""
    kind, tied = head_kind(config, kinds), config["tie_word_embeddings"]
    if kind == "embed":
        return HeadConfig("embed")
    if kind == "fill":
        transform = activation(config["hidden_act"])
        return HeadConfig("fill", dense=True, activation=transform, norm=True, bias=True, tied=tied)
    return HeadConfig(kind, num_labels(config), dense=kind == "classify", bias=True)


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
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
HARMLESS = (
    # of poolers that no checkpoint has
    field_names("directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head")
    | field_names("pooler_type")
    | field_names("emb_size")  # of what distilled it
)

LAYER, BLOCK = "encoder.layer.{}", "encoder.blocks.{}"
BODY: Names = {
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
        }
    ),
}
POOLER = norms_and_biases({"pooler.dense": "head.transform.dense"})
CLASSIFIER = norms_and_biases({"classifier": "head.output"})
FILL: Names = {
    **norms_and_biases(
        {
            "cls.predictions.transform.dense": "head.word_transform.dense",
            "cls.predictions.transform.LayerNorm": "head.word_transform.norm",
            "cls.predictions.decoder": "head.words.output",
        }
    ),
    "cls.predictions.decoder.bias": "head.words.bias",  # stored twice
    "cls.predictions.bias": "head.words.bias",
}
FOLLOWS = norms_and_biases({"cls.seq_relationship": "head.follows"})  # of the pretraining, which nobody asks

HEADS: Mapping[HeadKind, Names] = {
    "classify": {**POOLER, **CLASSIFIER},
    "tag": CLASSIFIER,
    "answer": norms_and_biases({"qa_outputs": "head.output"}),
    "fill": FILL,
    "embed": {},
}


def others(pooler: Names, fill: Names, follows: Names) -> Mapping[HeadKind, frozenset[str]]:
    """Return the tensors that come along with each head and belong to others."""
    return {
        "tag": frozenset(pooler),
        "answer": frozenset(pooler),
        "fill": frozenset({**pooler, **follows}),
        "embed": frozenset({**pooler, **follows, **fill}),
    }


BERT = Family(
    bert_config,
    BODY,
    DEFAULTS,
    HARMLESS,
    prefixes=("bert.",),
    computed=frozenset({"embeddings.position_ids"}),
    heads=HEADS,
    unused=others(POOLER, FILL, FOLLOWS),
)
