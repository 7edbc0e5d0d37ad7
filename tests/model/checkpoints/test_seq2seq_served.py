"""From the files of encoder–decoders, through exported packages, to the texts that the service answers with.

The truth is what transformers generates with the same generation settings, by its own tokenizer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import ByteLevelBPETokenizer

from model.checkpoints.read import read_checkpoint
from model.checkpoints.tokenizer import make_tokenizer
from model.checkpoints.tokenizer.languages import M2M_100
from model.export.export import export_package
from service.models_file import ModelSettings
from service.schemas import AnyRequest, ClassifyRequest, GenerateRequest, SummarizeRequest, TranslateRequest
from service.settings import Limits
from service.tasks.loading import load_task
from tests.model.checkpoints.conftest import PAGE, Train, vocabulary_of, write_json

IDS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
GENERATOR = torch.Generator().manual_seed(0)
TEXTS = [line.split(",")[0].split(".")[0] for line in PAGE[:20:4]]  # each shorter than a sentence
SIZES: dict[str, Any] = {
    "d_model": 30,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_ffn_dim": 44,
    "decoder_ffn_dim": 44,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "max_position_embeddings": 120,
    "init_std": 0.4,
}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def save(theirs: Any, folder: Path, **settings: Any) -> None:
    """Write a model, and how its outputs are chosen."""
    settings = {**theirs.generation_config.to_diff_dict(), **settings}
    theirs.generation_config = transformers.GenerationConfig(**settings)
    theirs.eval().save_pretrained(folder)


def packaged(checkpoint: Path) -> Path:
    """Import a checkpoint, and export it."""
    made = checkpoint / "made"
    made.mkdir()
    model, tokens, card, family = read_checkpoint(checkpoint, "tiny", "MIT", scratch=made)
    export_package(model, tokens, card, made / "tiny", precision="float32", family=family)
    return made / "tiny"


async def answers(checkpoint: Path, *requests: AnyRequest) -> list[Any]:
    """Return what the service answers with a checkpoint."""
    task = load_task(ModelSettings(package=packaged(checkpoint), threads=1), Limits())
    try:
        return [await task.predict(request) for request in requests]
    finally:
        await task.close()


def expected(theirs: Any, tokenizer: Any, texts: list[str], **settings: Any) -> list[str]:
    """Return what transformers makes of each text."""
    found = []
    for text in texts:
        given = tokenizer(text, return_tensors="pt")
        found.append(tokenizer.decode(theirs.generate(**given, **settings)[0], skip_special_tokens=True))
    assert len(set(found)) > 1  # else any text would do
    return found


async def test_marians_translations_are_those_of_transformers(marian: Path) -> None:
    with pytest.warns(UserWarning, match="sacremoses"):
        tokenizer = transformers.MarianTokenizer.from_pretrained(marian)
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    config = transformers.MarianConfig(
        **{**SIZES, "vocab_size": len(tokenizer), "pad_token_id": pad, "eos_token_id": end, "scale_embedding": True},
        **{"decoder_start_token_id": pad, "activation_function": "swish", "forced_eos_token_id": None},
    )
    theirs = transformers.MarianMTModel(config)
    theirs.final_logits_bias[0, pad] = 50.0  # it would always come
    theirs.final_logits_bias[0, end] = 2.0  # and this at times
    save(theirs, marian, num_beams=4, max_length=13, bad_words_ids=[[pad]], forced_eos_token_id=end)
    german, french, greedy = await answers(
        marian,
        TranslateRequest(input=TEXTS, source="en", target="deu"),
        TranslateRequest(input=TEXTS, source="en", target="fra"),
        TranslateRequest(input=TEXTS, source="en", target="fra", beam_size=1),
    )

    assert german.translations == expected(theirs, tokenizer, [f">>deu<< {text}" for text in TEXTS])
    asked = [f">>fra<< {text}" for text in TEXTS]
    assert french.translations == expected(theirs, tokenizer, asked)
    assert greedy.translations == expected(theirs, tokenizer, asked, num_beams=1)


async def test_what_t5_is_asked_in_words_it_answers_like_transformers(tmp_path: Path, train: Train) -> None:
    train(PAGE, "spiece.model", vocab_size=450, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    write_json(tmp_path, tokenizer_config={"extra_ids": 0})
    tokenizer = transformers.T5Tokenizer.from_pretrained(tmp_path, extra_ids=0)
    summary = {"num_beams": 3, "max_length": 14, "min_length": 6, "no_repeat_ngram_size": 2, "length_penalty": 2.0}
    german = {"num_beams": 2, "max_length": 10, "early_stopping": True}
    config = transformers.T5Config(
        **{"vocab_size": len(tokenizer) + 3, "d_model": 30, "d_kv": 12, "d_ff": 44, "num_layers": 2, "num_heads": 3},
        **{"num_decoder_layers": 1, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        task_specific_params={
            "summarization": {**summary, "prefix": "summarize: "},
            "translation_en_to_de": {**german, "prefix": "translate English to German: "},
        },
        decoder_start_token_id=0,
    )
    theirs = transformers.T5ForConditionalGeneration(config)
    theirs.lm_head.weight = torch.nn.Parameter(torch.randn(config.vocab_size, 30, generator=GENERATOR) * 0.4)
    save(theirs, tmp_path, max_length=10)
    generated, summarized, translated = await answers(
        tmp_path,
        GenerateRequest(prompt=TEXTS),
        SummarizeRequest(input=TEXTS),
        TranslateRequest(input=TEXTS, source="en", target="de"),
    )

    assert [choice.text for choice in generated.choices] == expected(theirs, tokenizer, TEXTS)
    asked = [f"summarize: {text}" for text in TEXTS]
    assert summarized.summaries == expected(theirs, tokenizer, asked, **summary)
    asked = [f"translate English to German: {text}" for text in TEXTS]
    assert translated.translations == expected(theirs, tokenizer, asked, **german)


async def test_a_text_is_ended_only_where_the_checkpoints_tokenizer_ends_it(tmp_path: Path) -> None:
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(TEXTS, 300, special_tokens=["<pad>", "</s>"])
    trained.save_model(str(tmp_path))
    named = {"eos_token": "</s>", "bos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    write_json(tmp_path, tokenizer_config={"tokenizer_class": "GPT2Tokenizer", **named})
    tokenizer = transformers.GPT2Tokenizer.from_pretrained(tmp_path, **named)
    config = transformers.T5Config(
        **{"vocab_size": len(tokenizer), "d_model": 24, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 3},
        **{"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "tie_word_embeddings": False},
    )
    theirs = transformers.T5ForConditionalGeneration(config)
    theirs.lm_head.weight = torch.nn.Parameter(torch.randn(config.vocab_size, 24, generator=GENERATOR) * 0.4)
    save(theirs, tmp_path, max_length=10)
    (generated,) = await answers(tmp_path, GenerateRequest(prompt=TEXTS))

    assert tokenizer(TEXTS[0])["input_ids"][-1] != 1
    assert [choice.text for choice in generated.choices] == expected(theirs, tokenizer, TEXTS)


@pytest.mark.parametrize("kind", ["M2M100", "MBart50"])
async def test_targets_of_many_to_many_translators_are_told_apart_like_in_transformers(
    kind: str, tmp_path: Path, train: Train
) -> None:
    model = train(PAGE, "sentencepiece.bpe.model")
    languages = [f"__{code}__" for code in M2M_100.split()] if kind == "M2M100" else []
    write_json(
        tmp_path,
        vocab=vocabulary_of(model, first=("<s>", "<pad>", "</s>", "<unk>")),
        tokenizer_config={"tokenizer_class": f"{kind}Tokenizer"},
        special_tokens_map={"additional_special_tokens": languages},
    )
    source, targets = ("sv", ("de", "fr")) if kind == "M2M100" else ("sv_SE", ("de_DE", "fr_XX"))
    tokenizer = getattr(transformers, f"{kind}Tokenizer").from_pretrained(tmp_path, src_lang=source)
    size = make_tokenizer(tmp_path, kind.lower()).get_vocab_size()
    name = kind.removesuffix("50")
    config = getattr(transformers, f"{name}Config")(**SIZES, **IDS, vocab_size=size, scale_embedding=True)
    theirs = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    search = {"num_beams": 3, "max_length": 12, "early_stopping": True, "no_repeat_ngram_size": 2}
    save(theirs, tmp_path, **search, forced_eos_token_id=2)
    found = await answers(
        tmp_path, *(TranslateRequest(input=TEXTS, source=source, target=target) for target in targets)
    )

    for target, answer in zip(targets, found, strict=True):
        first = tokenizer.convert_tokens_to_ids(f"__{target}__" if kind == "M2M100" else target)
        assert answer.translations == expected(theirs, tokenizer, TEXTS, forced_bos_token_id=first)


@pytest.fixture
def bart(tmp_path: Path) -> Any:
    """The tokenizer of a BART, whose files are in the test's folder."""
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(PAGE, 400, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    trained.save_model(str(tmp_path))
    return transformers.BartTokenizer.from_pretrained(tmp_path)


async def test_barts_summaries_are_those_of_transformers(bart: Any, tmp_path: Path) -> None:
    summary = {"num_beams": 3, "max_length": 14, "min_length": 6, "no_repeat_ngram_size": 3, "length_penalty": 2.0}
    config = transformers.BartConfig(
        **SIZES,
        **IDS,
        vocab_size=len(bart),
        task_specific_params={"summarization": {**summary, "early_stopping": True}},
    )
    theirs = transformers.BartForConditionalGeneration(config)
    theirs.final_logits_bias[0, 2] = 2.0
    save(theirs, tmp_path, forced_bos_token_id=0, forced_eos_token_id=2)
    (found,) = await answers(tmp_path, SummarizeRequest(input=TEXTS))

    assert found.summaries == expected(theirs, bart, TEXTS, early_stopping=True, **summary)


async def test_barts_entailment_sorts_texts_into_any_labels_like_transformers(bart: Any, tmp_path: Path) -> None:
    labels = {0: "contradiction", 1: "neutral", 2: "entailment"}
    config = transformers.BartConfig(
        **SIZES, **IDS, vocab_size=len(bart), id2label=labels, label2id={name: place for place, name in labels.items()}
    )
    theirs = transformers.BartForSequenceClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    asked, template = ["rights", "dignity", "ice cream"], "This text is about {}."
    (found,) = await answers(tmp_path, ClassifyRequest(input=TEXTS, labels=asked, hypothesis_template=template))

    truth = transformers.pipeline("zero-shot-classification", model=theirs, tokenizer=bart)
    for result, expected in zip(found.results, truth(TEXTS, asked, hypothesis_template=template), strict=True):
        assert [label.label for label in result.labels] == expected["labels"]
        assert [label.score for label in result.labels] == pytest.approx(expected["scores"], rel=1e-4)
