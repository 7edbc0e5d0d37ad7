from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer

from model.checkpoints.errors import CheckpointError
from model.checkpoints.languages import languages_in_files, read_languages
from model.checkpoints.read import read_checkpoint
from model.package.manifest import TOKENIZER_FILE
from model.training.tokenizers import train_wordpiece


def tokenizer_with(*tokens: str, special: bool = True) -> Tokenizer:
    tokenizer = train_wordpiece(["a b c"], 60)
    tokenizer.add_tokens([AddedToken(token, special=special) for token in tokens])
    return tokenizer


@pytest.mark.parametrize(
    ("tokens", "names"),
    [
        (("__af__", "__ast__", "<pad>"), ["af", "ast"]),
        (("ar_AR", "cs_CZ", "<mask>"), ["ar_AR", "cs_CZ"]),
        (("eng_Latn", "zho_Hans"), ["eng_Latn", "zho_Hans"]),
    ],
    ids=["M2M100", "mBART-50", "NLLB"],
)
def test_tokens_that_are_languages_stand_on_both_sides(tokens: tuple[str, ...], names: list[str]) -> None:
    tokenizer = tokenizer_with(*tokens)
    languages = read_languages(tokenizer, None)

    assert languages is not None and languages.sources == languages.targets == names and not languages.directions
    one, other = (tokenizer.token_to_id(token) for token in tokens[:2])
    assert languages.first_of_source(names[0], names[1]) == [one]
    assert languages.first_of_target(names[1]) == other
    assert languages.translates(*names) and not languages.translates(names[0], names[0])


def test_words_that_look_like_languages_are_none() -> None:
    assert read_languages(tokenizer_with("en_XX", "de_DE", special=False), None) is None


def test_a_direction_among_many_languages_can_be_chosen() -> None:
    tokenizer = tokenizer_with("__af__", "__de__", "__en__")
    languages = read_languages(tokenizer, ("en", "de"))

    assert languages is not None and languages.directions == [("en", "de")] and languages.forces_target
    with pytest.raises(CheckpointError, match="no language 'fr'; it has af, de, en"):
        read_languages(tokenizer, ("en", "fr"))


def test_a_first_token_that_is_forced_leaves_one_target() -> None:
    tokenizer = tokenizer_with("af_ZA", "de_DE", "en_XX")
    languages = read_languages(tokenizer, None, tokenizer.token_to_id("en_XX"))

    assert languages is not None and languages.directions == [("af_ZA", "en_XX"), ("de_DE", "en_XX")]
    any_to_any = read_languages(tokenizer, None, 0)  # a start that is no language, as BART's
    assert any_to_any is not None and not any_to_any.directions


def test_marians_targets_go_with_the_source_that_is_given() -> None:
    tokenizer = tokenizer_with(">>fra<<", ">>spa<<", special=False)
    romance = read_languages(tokenizer, ("en", "roa"))

    assert romance is not None and romance.directions == [("en", "fra"), ("en", "spa")]
    assert romance.first_of_source("en", "spa") == [tokenizer.token_to_id(">>spa<<")]
    french = read_languages(tokenizer, ("en", "fra"))
    assert french is not None and french.directions == [("en", "fra")]


def test_a_translator_of_one_direction_has_no_tokens_for_it() -> None:
    languages = read_languages(tokenizer_with(), ("en", "de"))

    assert languages is not None and languages.directions == [("en", "de")]
    assert languages.first_of_source("en", "de") == [] and languages.first_of_target("de") is None
    with pytest.raises(CheckpointError, match="'en de' is no name of a language; it is a word"):
        read_languages(tokenizer_with(), ("en de", "fr"))


def test_small_100_is_asked_for_the_target_before_the_source() -> None:
    tokenizer = tokenizer_with("__de__", "__en__")
    usual, small = (read_languages(tokenizer, None, is_small_100=is_small) for is_small in (False, True))

    assert usual is not None and small is not None
    assert (usual.first_of_source("en", "de"), usual.first_of_target("de")) == ([usual.ids["en"]], usual.ids["de"])
    assert (small.first_of_source("en", "de"), small.first_of_target("de")) == ([small.ids["de"]], None)


def test_a_translators_files_may_tell_its_direction(tmp_path: Path) -> None:
    assert languages_in_files(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    assert languages_in_files(tmp_path) == ("en", "de")


BART: dict[str, Any] = {
    **{"vocab_size": 99, "d_model": 32, "max_position_embeddings": 40, "decoder_start_token_id": 2},
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
}


BARE: dict[str, Any] = {"pretrained": {}}  # a task that says that nothing was fine-tuned


def test_a_translator_must_be_told_its_languages_where_its_files_do_not_tell_them(tmp_path: Path) -> None:
    config = transformers.MarianConfig(**BART, pad_token_id=1, eos_token_id=3).to_dict()
    (tmp_path / "config.json").write_text(json.dumps(config))
    train_wordpiece(["a b c"], 60).save(str(tmp_path / TOKENIZER_FILE))

    with pytest.raises(CheckpointError, match="a model for translate needs the source and the target language"):
        read_checkpoint(tmp_path, "tiny", "MIT", scratch=tmp_path)


@pytest.mark.parametrize(
    ("languages", "tasks", "task"),
    [
        (None, {}, "generate"),
        (None, {**BARE, "summarization": {"min_length": 9}}, "generate"),
        (None, {"summarization": {"min_length": 9, "num_beams": 4}}, "summarize"),
        (("en", "de"), {}, "translate"),
        (("en", "de"), {"translation_en_to_de": {"num_beams": 3, "prefix": "to German: "}}, "translate"),
    ],
)
def test_an_encoder_decoder_does_what_it_was_made_for(
    tmp_path: Path, languages: tuple[str, str] | None, tasks: dict[str, Any], task: str
) -> None:
    theirs = transformers.BartForConditionalGeneration(transformers.BartConfig(**BART))
    classes = ["BartModel" if tasks.keys() >= BARE.keys() else "BartForConditionalGeneration"]
    config = {**theirs.config.to_dict(), "task_specific_params": tasks, "architectures": classes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    twins = {"lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}
    tensors = theirs.state_dict()
    save_file({name: tensors[name] for name in tensors.keys() - twins}, tmp_path / "model.safetensors")
    train_wordpiece(["a b c"], 60).save(str(tmp_path / TOKENIZER_FILE))

    _, tokens, card, _ = read_checkpoint(tmp_path, "tiny", "MIT", languages, scratch=tmp_path)

    assert tokens is not None
    assert card.task == task and tokens.special_ids.start == 2 and not tokens.starts_prompts
    assert (tokens.languages is None) == (task != "translate")
    assert tokens.generation is not None and tokens.generation.min_tokens is None
    summary = tokens.task_prompts.get("summarize")
    assert (summary and summary.generation and summary.generation.min_tokens) == (8 if task == "summarize" else None)
    if asked := tasks.get("translation_en_to_de"):
        assert tokens.languages is not None and tokens.languages.directions == [("en", "de")]
        assert tokens.languages.prefix_of("en", "de") == asked["prefix"]
        assert tokens.generation.beam_size == 3 and not tokens.task_prompts
