from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from model.checkpoints.bert import BERT
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import convert
from tests.model.checkpoints.encoders import batch, error_beside
from tests.model.checkpoints.parity import TOLERANCE, converted, random_weights


def bert(kind: str = "SequenceClassification", **changes: Any) -> Any:
    sizes: dict[str, Any] = {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 40,
        "attn_implementation": "eager",
    }
    config = transformers.BertConfig(**{**sizes, **changes})
    return random_weights(getattr(transformers, f"BertFor{kind}")(config))


CASES: list[tuple[str, dict[str, Any]]] = [
    ("SequenceClassification", {"num_labels": 3}),
    ("SequenceClassification", {"num_labels": 1, "hidden_act": "relu", "type_vocab_size": 1}),
    ("SequenceClassification", {"vocab_size": 101, "hidden_size": 36, "num_attention_heads": 3}),
    ("SequenceClassification", {"hidden_size": 26, "num_attention_heads": 2, "hidden_act": "gelu_new"}),
    ("TokenClassification", {"num_labels": 5, "hidden_act": "silu", "num_hidden_layers": 1}),
    ("TokenClassification", {"layer_norm_eps": 1e-2, "intermediate_size": 7, "pad_token_id": 5}),
    ("QuestionAnswering", {"hidden_act": "tanh", "type_vocab_size": 3}),
    ("QuestionAnswering", {"num_attention_heads": 1, "num_hidden_layers": 3}),
    ("MaskedLM", {}),
    ("MaskedLM", {"vocab_size": 83, "hidden_act": "quick_gelu"}),
    ("MaskedLM", {"hidden_act": "gelu_pytorch_tanh", "num_attention_heads": 8}),
    ("PreTraining", {"hidden_act": "gelu_fast"}),
]


@pytest.mark.parametrize(("kind", "changes"), CASES)
def test_every_head_answers_as_in_transformers(kind: str, changes: dict[str, Any]) -> None:
    theirs = bert(kind, **changes)
    config = theirs.config
    assert error_beside(theirs, pad=config.pad_token_id, segments=config.type_vocab_size) < TOLERANCE


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'; only 'absolute'"),
        ({"is_decoder": True}, "is_decoder is True; only False is supported"),
        ({"hidden_act": "mish"}, "the activation 'mish' is not supported"),
        ({"auto_map": {"AutoModel": "mine.Model"}}, "auto_map is {'AutoModel': 'mine.Model'}"),
        ({"architectures": ["BertForMultipleChoice"]}, "architectures is ['BertForMultipleChoice']; only names that"),
        ({"num_hidden_layers": 3}, "the checkpoint lacks 16 parameters, the first encoder.blocks.2"),
        ({"id2label": {"0": "a"}}, "classifier.weight: the shape is (2, 32); head.output.weight needs (1, 32)"),
    ],
)
def test_a_bert_that_is_not_supported_is_refused_by_name_and_value(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError) as error:
        converted(bert(), **changes)
    assert words in str(error.value)


def test_tensors_of_other_heads_are_left_out_where_they_come_along_and_refused_elsewhere() -> None:
    tensors = bert("PreTraining").state_dict()
    config = {**bert().config.to_dict(), "architectures": ["BertForMaskedLM"]}
    convert(BERT, config, tensors)  # with the pooler, and what tells whether sentences follow each other

    with pytest.raises(CheckpointError, match=r"cls\.\S+: no parameter has this name"):
        convert(BERT, {**config, "architectures": ["BertForTokenClassification"]}, tensors)


def test_norms_may_have_the_names_that_tensorflow_gives_them() -> None:
    theirs = bert("MaskedLM")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in theirs.state_dict().items()
    }
    ours = convert(BERT, {**theirs.config.to_dict(), "architectures": ["BertForMaskedLM"]}, old)
    ids, mask, segments = batch(99, segments=2, pad=0)

    assert torch.equal(ours(ids, mask, segments), converted(theirs)(ids, mask, segments))


def test_words_of_the_output_may_be_their_own() -> None:
    theirs = bert("MaskedLM", tie_word_embeddings=False)
    theirs.cls.predictions.decoder.bias.data.copy_(theirs.cls.predictions.bias)  # of which transformers uses one
    assert not converted(theirs).config.head.tied
    assert error_beside(theirs, segments=2) < TOLERANCE
