"""Adapters of PEFT on their bases, beside PEFT itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from model.architectures import Transformer
from model.checkpoints.adapted import open_joined
from model.checkpoints.adapters import Adapter, join
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import load
from model.checkpoints.files import read_config
from model.checkpoints.heads import labels_of
from model.checkpoints.read import family_of
from tests.model.checkpoints.parity import assert_equal, loud_weights

# Of peft: of what is to come in transformers, of embeddings that are saved, and of twins that go apart.
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("FutureWarning", "UserWarning")]

IDS = torch.randint(3, 90, (2, 12), generator=torch.Generator().manual_seed(0))
SIZES: dict[str, Any] = {"vocab_size": 97, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LLAMA: dict[str, Any] = {
    **SIZES,
    **{"hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "tie_word_embeddings": True},
}
BERT: dict[str, Any] = {
    **{"vocab_size": 97, "hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"max_position_embeddings": 32, "pad_token_id": 0},
}


def llama(**fields: Any) -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**LLAMA, **fields}))


def gpt2() -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**SIZES, n_embd=24, n_head=4, n_layer=2, n_positions=32)
    )


def bert() -> Any:
    return transformers.BertForMaskedLM(transformers.BertConfig(**BERT))


def roberta() -> Any:
    return transformers.RobertaForMaskedLM(transformers.RobertaConfig(**BERT | {"pad_token_id": 1}))


def save(base: Any, folder: Path) -> Path:
    loud_weights(base).save_pretrained(folder / "base")
    return folder / "base"


def adapted(model: Any, folder: Path, *targets: str, **options: Any) -> Any:
    """Wrap a model that was read from `folder / base`, make what is to be trained random, and save only that."""
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=list(targets), r=4, **options))
    generator = torch.Generator().manual_seed(1)
    for name, parameter in wrapped.named_parameters():
        if parameter.requires_grad and "magnitude" in name:
            parameter.data.mul_(1.5)
        elif parameter.requires_grad:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    wrapped.save_pretrained(str(folder / "adapter"))
    return wrapped.eval()


def joined(folder: Path) -> Transformer:
    shutil.rmtree(folder / "joined", ignore_errors=True)
    (folder / "joined").mkdir()
    join(Adapter.read(folder / "adapter"), folder / "base", folder / "joined", allow_pickle=False)
    config = read_config(folder / "joined")
    family = family_of(config)
    assert family is not None
    made = family.to_config(config)
    with open_joined(folder / "joined", family, made, allow_pickle=False) as tensors:
        return load(family, made, tensors)


ATTENTION, ALL = ("q_proj", "v_proj"), ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@torch.no_grad()
@pytest.mark.parametrize(
    ("targets", "options"),
    [
        pytest.param(ATTENTION, {}, id="LoRA"),
        pytest.param(ALL, {"use_rslora": True, "lora_alpha": 3}, id="rsLoRA"),
        pytest.param(ALL, {"use_dora": True}, id="DoRA"),
        pytest.param(
            ATTENTION,
            {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {r"layers\.1\.self_attn\.q_proj": 32, "v_proj": 5}},
            id="ranks and scales of their own",
        ),
        pytest.param(("embed_tokens", "q_proj"), {}, id="the word embedding, while its twin stays"),
        pytest.param(("lm_head",), {}, id="the output matrix, while its twin stays"),
        pytest.param(("embed_tokens",), {"ensure_weight_tying": True}, id="both"),
        pytest.param(ATTENTION, {"modules_to_save": ["embed_tokens", "lm_head"]}, id="both, replaced"),
        pytest.param(ATTENTION, {"modules_to_save": ["embed_tokens"]}, id="the word embedding, replaced"),
        pytest.param(ATTENTION, {"modules_to_save": ["lm_head"]}, id="the output matrix, replaced"),
        pytest.param(ATTENTION, {"trainable_token_indices": [3, 96]}, id="vectors of two tokens"),
        pytest.param(ATTENTION, {"trainable_token_indices": {"embed_tokens": [5]}}, id="vectors of one, by its place"),
        pytest.param(ALL, {"target_parameters": None, "init_lora_weights": "gaussian"}, id="another start"),
    ],
)
@pytest.mark.parametrize("tied", [True, False])
def test_a_decoder_is_changed_as_by_peft(
    targets: tuple[str, ...], options: dict[str, Any], tied: bool, tmp_path: Path
) -> None:
    base = save(llama(tie_word_embeddings=tied), tmp_path)
    theirs = adapted(transformers.AutoModelForCausalLM.from_pretrained(base), tmp_path, *targets, **options)

    assert_equal(joined(tmp_path)(IDS), theirs(IDS).logits)


@torch.no_grad()
@pytest.mark.parametrize("options", [{}, {"use_dora": True}, {"modules_to_save": ["wte"]}, {"bias": "all"}], ids=str)
@pytest.mark.parametrize("targets", [("c_attn", "c_proj", "c_fc"), ("c_attn", "lm_head")])
def test_matrices_that_are_stored_transposed_are_changed_so(
    targets: tuple[str, ...], options: dict[str, Any], tmp_path: Path
) -> None:
    base = save(gpt2(), tmp_path)
    theirs = adapted(transformers.AutoModelForCausalLM.from_pretrained(base), tmp_path, *targets, **options)

    assert_equal(joined(tmp_path)(IDS), theirs(IDS).logits)


@torch.no_grad()
@pytest.mark.parametrize(
    ("make", "has_prefix"),
    [(bert, True), *((make, has_prefix) for make in (roberta, gpt2, llama) for has_prefix in (True, False))],
)
def test_a_model_of_words_becomes_one_that_labels(make: Any, has_prefix: bool, tmp_path: Path) -> None:
    theirs = make()
    base = save(theirs if has_prefix else theirs.base_model, tmp_path)
    if make is bert:  # as published, with the pooler of its pretraining
        tensors = load_file(base / "model.safetensors")
        pooler = {"bert.pooler.dense.weight": torch.randn(24, 24) * 0.3, "bert.pooler.dense.bias": torch.randn(24)}
        save_file({**tensors, **pooler}, base / "model.safetensors", {"format": "pt"})
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    targets = {bert: ("query", "value"), roberta: ("query", "value"), gpt2: ("c_attn",), llama: ATTENTION}[make]
    ids = IDS.clone()
    ids[0, 8:] = model.config.pad_token_id
    mask = ids != model.config.pad_token_id
    theirs = adapted(model, tmp_path, *targets, task_type="SEQ_CLS")

    assert_equal(joined(tmp_path)(ids, mask), theirs(input_ids=ids, attention_mask=mask.long()).logits)
    assert labels_of(read_config(tmp_path / "joined")) == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_labels_have_the_names_that_a_config_beside_the_adapter_has(tmp_path: Path) -> None:
    base = save(gpt2(), tmp_path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=2)
    adapted(model, tmp_path, "c_attn", task_type="SEQ_CLS")
    for named, expected in (({"0": "ham", "1": "spam"}, ("ham", "spam")), ({"0": "a"}, ("LABEL_0", "LABEL_1"))):
        (tmp_path / "adapter" / "config.json").write_text(json.dumps({"id2label": named}))
        joined(tmp_path)
        assert labels_of(read_config(tmp_path / "joined")) == expected


@torch.no_grad()
def test_a_model_of_words_becomes_one_that_labels_tokens(tmp_path: Path) -> None:
    base = save(bert(), tmp_path)
    model = transformers.AutoModelForTokenClassification.from_pretrained(base, num_labels=5)
    theirs = adapted(model, tmp_path, "query", task_type="TOKEN_CLS", bias="lora_only")

    assert_equal(joined(tmp_path)(IDS, torch.ones_like(IDS)), theirs(IDS).logits)


@torch.no_grad()
def test_an_encoder_decoder_is_changed_as_by_peft(tmp_path: Path) -> None:
    config = transformers.T5Config(
        vocab_size=97, d_model=24, d_kv=6, d_ff=37, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    base = save(transformers.T5ForConditionalGeneration(config), tmp_path)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(base)
    theirs = adapted(model, tmp_path, "q", "v", "wo", task_type="SEQ_2_SEQ_LM")

    mask = torch.ones_like(IDS)
    expected = theirs(input_ids=IDS, attention_mask=mask, decoder_input_ids=IDS[:, :5]).logits
    assert_equal(joined(tmp_path)(IDS, mask, IDS[:, :5]), expected)


def vit() -> Any:
    sizes = {"hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=4, num_labels=3)
    return transformers.ViTForImageClassification(config)


@torch.no_grad()
def test_a_model_of_pictures_is_changed_as_by_peft_by_the_names_that_it_has_now(tmp_path: Path) -> None:
    base = save(vit(), tmp_path)
    model = transformers.AutoModelForImageClassification.from_pretrained(base)
    targets = ("q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2")
    theirs = adapted(model, tmp_path, *targets, modules_to_save=["classifier"])
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))

    assert_equal(joined(tmp_path)(pixels), theirs(pixel_values=pixels).logits)


@torch.no_grad()
def test_a_head_of_two_maps_has_as_many_labels_as_the_last(tmp_path: Path) -> None:
    sizes = {"vocab_size": 97, "dim": 24, "hidden_dim": 37, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 32}
    base = save(transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(**sizes)), tmp_path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    theirs = adapted(model, tmp_path, "q_lin", task_type="SEQ_CLS", modules_to_save=["pre_classifier", "classifier"])

    assert_equal(joined(tmp_path)(IDS, torch.ones_like(IDS)), theirs(input_ids=IDS).logits)


@torch.no_grad()
def test_words_that_only_llamas_tie_go_apart_elsewhere(tmp_path: Path) -> None:
    base = save(gpt2(), tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    theirs = adapted(model, tmp_path, "wte", ensure_weight_tying=True)

    assert_equal(joined(tmp_path)(IDS), theirs(IDS).logits)


@torch.no_grad()
def test_an_expression_that_names_the_word_embedding_ties_nothing(tmp_path: Path) -> None:
    base = save(llama(), tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    options = peft.LoraConfig(target_modules=r".*\.(q_proj|embed_tokens)", r=4, ensure_weight_tying=True)
    wrapped = peft.get_peft_model(model, options)
    generator = torch.Generator().manual_seed(1)
    for parameter in wrapped.parameters():
        if parameter.requires_grad:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    wrapped.save_pretrained(str(tmp_path / "adapter"))
    theirs = peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(base), tmp_path / "adapter"
    )

    assert_equal(joined(tmp_path)(IDS), theirs.eval()(IDS).logits)


@pytest.mark.parametrize("tied", [True, False])
def test_words_that_parts_of_a_model_share_are_not_changed(tied: bool, tmp_path: Path) -> None:
    config = transformers.T5Config(
        vocab_size=97, d_model=24, d_kv=6, d_ff=37, num_layers=1, num_heads=4, tie_word_embeddings=tied
    )
    base = save(transformers.T5ForConditionalGeneration(config), tmp_path / "t5")
    adapted(transformers.AutoModelForSeq2SeqLM.from_pretrained(base), tmp_path / "t5", "shared")
    base = save(bert(), tmp_path / "bert")
    adapted(transformers.AutoModelForMaskedLM.from_pretrained(base), tmp_path / "bert", "word_embeddings")

    for name in ("t5", "bert"):
        with pytest.raises(CheckpointError, match="it changes the word embedding, which parts of the model share"):
            joined(tmp_path / name)


def test_pictures_are_made_and_tools_told_as_the_adapter_s_files_have_it(folder: Path) -> None:
    for name, of in (("base", "base"), ("adapter", "adapter")):
        (folder / name / "preprocessor_config.json").write_text(json.dumps({"of": of}))
    (folder / "base" / "additional_chat_templates").mkdir()
    (folder / "base" / "additional_chat_templates" / "tool_use.jinja").write_text("TOOLS")
    joined(folder)

    assert json.loads((folder / "joined" / "preprocessor_config.json").read_text()) == {"of": "adapter"}
    assert (folder / "joined" / "additional_chat_templates" / "tool_use.jinja").read_text() == "TOOLS"


@torch.no_grad()
def test_words_that_were_added_come_with_the_adapter(tmp_path: Path) -> None:
    base = save(llama(), tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    model.resize_token_embeddings(101)
    theirs = adapted(model, tmp_path, *ATTENTION)

    assert_equal(joined(tmp_path)(IDS + 6), theirs(IDS + 6).logits)


def test_numbers_of_16_bits_are_added_in_32(tmp_path: Path) -> None:
    base = save(llama().bfloat16(), tmp_path)
    with torch.no_grad():
        adapted(transformers.AutoModelForCausalLM.from_pretrained(base), tmp_path, "q_proj", "embed_tokens")
        model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        theirs = peft.PeftModel.from_pretrained(model, tmp_path / "adapter").eval()

        assert_equal(joined(tmp_path)(IDS), theirs(IDS).logits)


def write(folder: Path, **fields: Any) -> None:
    path = folder / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base and an adapter."""
    folder = tmp_path_factory.mktemp("adapted")
    base = save(llama(), folder)
    adapted(transformers.AutoModelForCausalLM.from_pretrained(base), folder, "q_proj")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of these, to break."""
    for name in ("base", "adapter"):
        (tmp_path / name).mkdir()
        for path in (made / name).iterdir():
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type: Input should be 'LORA'; merge it"),
        ({"task_type": "IMAGES"}, "task_type: Input should be .*'SEQ_CLS'"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: Input should be True, False, 'gaussian'"),
        ({"lora_bias": True}, "lora_bias is True; merge it"),
        ({"layer_replication": [[0, 2]]}, "layer_replication is .*; merge it"),
        ({"use_moons": True}, "use_moons is True; this field is not known"),
        ({"lora_alpha": "much"}, "lora_alpha: Input should be a valid number"),
        ({"alpha_pattern": {"q_proj": None}}, r"alpha_pattern\.q_proj: Input should be a valid number"),
        ({"alpha_pattern": {"q_proj(": 3}}, "alpha_pattern has no expression"),
    ],
)
def test_what_changes_answers_in_other_ways_is_refused_by_its_name(
    fields: dict[str, Any], message: str, folder: Path
) -> None:
    write(folder, **fields)
    with pytest.raises(CheckpointError, match=message):
        joined(folder)


def test_an_adapter_of_another_model_is_refused(folder: Path) -> None:
    save(gpt2(), folder)
    with pytest.raises(CheckpointError, match=r"its base has no .*q_proj\.weight, which it changes"):
        joined(folder)
    save(llama(hidden_size=32), folder)
    with pytest.raises(CheckpointError, match=r"q_proj: its matrices are .* that of its base is \(32, 32\)"):
        joined(folder)


def test_half_of_a_pair_is_refused(folder: Path) -> None:
    path = folder / "adapter" / "adapter_model.safetensors"
    tensors = load_file(path)
    del tensors["base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"]
    save_file(tensors, path)
    with pytest.raises(
        CheckpointError, match=r"layers\.1\.self_attn\.q_proj: it has lora_A, and needs lora_A and lora_B"
    ):
        joined(folder)


def test_tensors_that_are_none_of_an_adapter_s_are_refused(folder: Path) -> None:
    save_file({"prompt_embeddings": torch.ones(2, 2)}, folder / "adapter" / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"prompt_embeddings is no tensor of it"):
        joined(folder)


def test_a_quantized_base_is_refused(folder: Path) -> None:
    path = folder / "base" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": {"load_in_4bit": True}}))
    with pytest.raises(CheckpointError, match="its weights are quantized; give the same model in full precision"):
        joined(folder)
