"""What encoders' files may have, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from model.checkpoints.bert import BERT
from model.checkpoints.deberta import DEBERTA
from model.checkpoints.errors import CheckpointError
from model.checkpoints.read import FAMILIES, family_of
from model.sizes import SIZES
from tests.checkpoints import convert
from tests.model.checkpoints.parity import converted, loud_weights
from tests.model.checkpoints.published_encoders import BERT_OF_EARLY_2020, MULTILINGUAL_BERT, PUBLISHED

IDS, MASK = torch.tensor([[5, 9, 3, 7], [4, 8, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


def bert(kind: str = "SequenceClassification", **changes: Any) -> Any:
    sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.BertConfig(**{**sizes, "intermediate_size": 48, "max_position_embeddings": 40, **changes})
    return loud_weights(getattr(transformers, f"BertFor{kind}")(config))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_configuration_is_read(name: str) -> None:
    family = family_of(PUBLISHED[name])

    assert family is not None and family.to_config(PUBLISHED[name]) == SIZES[name]


def test_a_field_that_mpnet_does_not_have_changes_nothing() -> None:
    config = {**PUBLISHED["mpnet-base"], "type_vocab_size": 2}

    assert FAMILIES["mpnet"].to_config(config) == SIZES["mpnet-base"]


def test_fields_of_a_pooler_that_nobody_computes_change_nothing() -> None:
    assert BERT.to_config(MULTILINGUAL_BERT).vocab_size == 119547


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"architectures": ["RobertaForSequenceClassification"], "model_type": "roberta", "pad_token_id": 1},
    ],
)
def test_how_files_of_early_2020_choose_outputs_changes_no_encoder(changes: dict[str, Any]) -> None:
    config = {**BERT_OF_EARLY_2020, **changes}

    assert FAMILIES[config["model_type"]].to_config(config).head.num_labels == 2


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (
            "roberta-base",
            {"position_embedding_type": "relative_key"},
            "is 'relative_key'; only 'absolute' is",
        ),
        ("mpnet-base", {"relative_attention_num_buckets": 16}, "relative_attention_num_buckets is 16; only 32 is"),
        ("electra-small-generator", {"architectures": ["ElectraForPreTraining"]}, "it tells replaced words, and must"),
        ("nomic-embed-text-v1.5", {"prenorm": True}, "prenorm is True; only False is supported"),
        ("nomic-embed-text-v1.5", {"rotary_scaling_factor": 2}, "rotary_scaling_factor is 2; only None is supported"),
        ("nomic-embed-text-v1.5", {"hidden_size": 512}, "n_embd is 768; hidden_size says otherwise"),
        ("nomic-embed-text-v1.5", {"num_experts": 8}, "num_experts is 8; this field is not known"),
        ("jina-embeddings-v2-base-en", {"hidden_act": "relu"}, "hidden_act is 'relu'; only 'gelu' is supported"),
        ("jina-embeddings-v2-base-en", {"feed_forward_type": "reglu"}, "feed_forward_type is 'reglu'; only 'geglu' is"),
        ("albert-base", {"num_hidden_groups": 2}, "num_hidden_groups is 2; only 1 is supported"),
        ("gte-base-en-v1.5", {"logn_attention_scale": True}, "logn_attention_scale is True; only False is supported"),
        (
            "gte-base-en-v1.5",
            {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.7}},
            "of type ntk it has a factor and nothing else",
        ),
        ("roberta-base", {"is_decoder": True}, "is_decoder is True; only False is supported"),
        ("roberta-base", {"pad_token_id": None}, "pad_token_id is None; it must be an id, which positions count from"),
        ("roberta-base", {"hidden_act": "mish"}, "the activation 'mish' is not supported"),
        ("roberta-base", {"auto_map": {"AutoModel": "mine.Model"}}, "auto_map is {'AutoModel': 'mine.Model'}; this"),
        ("distilbert", {"architectures": ["DistilBertForMultipleChoice"]}, "only names that end in ForSequenceCl"),
        ("modernbert-base", {"classifier_pooling": "max"}, "classifier_pooling is 'max'; only cls, mean are supported"),
        ("modernbert-base", {"layer_types": ["linear_attention"] * 22}, "each layer must be one of full_attention"),
        (
            "modernbert-base",
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1.0}}},
            "rope_type is 'yarn'; only default, linear, llama3 are supported",
        ),
        ("modernbert-base", {"rope_scaling": {"type": "linear"}}, "rope_scaling is {'type': 'linear'}; only None"),
        ("deberta-v3-base", {"relative_attention": False}, "pos_att_type is 'p2c|c2p'; only"),
        ("deberta-v3-base", {"share_att_key": False}, "share_att_key is False; only True is supported"),
        ("deberta-v3-base", {"pos_att_type": "c2p"}, "pos_att_type is 'c2p'; only p2c and c2p together"),
        ("deberta-v3-base", {"norm_rel_ebd": "none"}, "norm_rel_ebd is 'none'; only 'layer_norm' is supported"),
        ("deberta-v3-base", {"conv_kernel_size": 3}, "conv_kernel_size is 3; only 0 is supported"),
        ("deberta-v3-base", {"position_buckets": -1}, "position_buckets is -1; it must be at least 1"),
        ("deberta-v3-base", {"embedding_size": 128}, "embedding_size is 128; only 768 is supported"),
        ("deberta-v3-base", {"z_steps": 2}, "z_steps is 2; this field is not known"),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_value(name: str, changes: dict[str, Any], words: str) -> None:
    config = {**PUBLISHED[name], **changes}
    family = family_of(config)
    assert family is not None
    with pytest.raises(CheckpointError) as error:
        family.to_config(config)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 3}, "no tensor of its weights becomes encoder.blocks.2"),
        ({"id2label": {"0": "a"}}, "classifier.weight: the shape is (2, 32); head.output.weight needs (1, 32)"),
        ({"num_hidden_layers": 1}, "this configuration has no encoder.blocks.1"),
    ],
)
def test_tensors_that_do_not_fit_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError) as error:
        converted(bert(), **changes)
    assert words in str(error.value)


def test_tensors_of_other_heads_are_left_out_where_they_come_along_and_refused_elsewhere() -> None:
    theirs = bert("PreTraining")
    config = {**theirs.config.to_dict(), "architectures": ["BertForMaskedLM"]}
    # Also the pooler, and what tells whether one sentence follows the other.
    ours = convert(BERT, config, theirs.state_dict())

    torch.testing.assert_close(ours(IDS, MASK)[MASK > 0], theirs(IDS, MASK).prediction_logits[MASK > 0])
    with pytest.raises(CheckpointError, match=r"cls\.\S+: its weights have a tensor of this name"):
        convert(BERT, {**config, "architectures": ["BertForTokenClassification"]}, theirs.state_dict())


def test_norms_may_have_the_names_that_tensorflow_gives_them() -> None:
    theirs = bert("MaskedLM")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in theirs.state_dict().items()
    }
    ours = convert(BERT, {**theirs.config.to_dict(), "architectures": ["BertForMaskedLM"]}, old)

    assert torch.equal(ours(IDS, MASK), converted(theirs)(IDS, MASK))


def test_positions_that_a_deberta_does_not_add_may_come_along() -> None:
    sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    relative = {"relative_attention": True, "share_att_key": True, "position_buckets": 4, "pos_att_type": "c2p|p2c"}
    config = transformers.DebertaV2Config(
        **sizes, **relative, norm_rel_ebd="layer_norm", intermediate_size=8, position_biased_input=False
    )
    theirs = transformers.DebertaV2ForMaskedLM(config)
    tensors = {**theirs.state_dict(), "deberta.embeddings.position_embeddings.weight": torch.ones(512, 32)}

    convert(DEBERTA, {**config.to_dict(), "architectures": ["DebertaV2ForMaskedLM"]}, tensors)
