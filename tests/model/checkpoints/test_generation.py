from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models

from model.checkpoints.errors import CheckpointError
from model.checkpoints.generation import OutputSettings, read_output_settings
from model.checkpoints.read import stated_config
from model.package import Generation, SpecialIds
from model.sizes import SIZES
from tests.model.checkpoints.published import PUBLISHED

ENDS = {"eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1}


def read(folder: Path, generation: dict[str, Any] | None, *, seq2seq: bool = False, **config: Any) -> OutputSettings:
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return read_output_settings(folder, config, is_encoder_decoder=seq2seq)


def test_qwens_sampling_and_ends(tmp_path: Path) -> None:
    stated = {
        "bos_token_id": 151643,
        "do_sample": True,
        "eos_token_id": [151645, 151643],
        "pad_token_id": 151643,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "repetition_penalty": 1.05,
        "transformers_version": "4.51.0",
    }
    settings = read(tmp_path, stated, eos_token_id=151645, vocab_size=151936)

    assert settings.special_ids == SpecialIds(pad=151643, start=151643, end=151645)
    assert settings.generation == Generation(
        end_ids=[151643], temperature=0.6, top_k=20, top_p=0.95, repetition_penalty=1.05, early_stopping=False
    )


def test_ends_that_only_the_config_has_all_count(tmp_path: Path) -> None:
    settings = read(tmp_path, {"bos_token_id": 0}, eos_token_id=[7, 8, 9], pad_token_id=1)

    assert settings.special_ids.end == 7 and settings.generation.end_ids == [8, 9]


def test_an_id_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="pad_token_id is -1: Input should be greater than or equal to 0"):
        read(tmp_path, ENDS | {"pad_token_id": -1, "decoder_start_token_id": 0}, seq2seq=True)


def test_a_decoder_whose_texts_would_begin_with_a_prefix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: prefix is 'Once '; a decoder's texts get none here"):
        read(tmp_path, ENDS, prefix="Once ")


def test_a_prefix_that_the_tokenizer_writes_itself_is_none(tmp_path: Path) -> None:
    for name in ("opt-125m", "gpt2"):
        (tmp_path / "config.json").write_text(json.dumps({**PUBLISHED[name], "prefix": "</s>"}))
        if name == "opt-125m":
            assert stated_config(tmp_path) == SIZES[name]
        else:
            with pytest.raises(CheckpointError, match="prefix is '</s>'; a decoder's texts get none here"):
                stated_config(tmp_path)


def test_a_decoder_without_padding_is_padded_with_its_end(tmp_path: Path) -> None:
    assert read(tmp_path, {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": -1}).special_ids.pad == 2


def test_marians_padding_is_a_bad_word(tmp_path: Path) -> None:
    stated = {
        "bad_words_ids": [[58100], [0]],
        "bos_token_id": 0,
        "decoder_start_token_id": 58100,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "max_length": 512,
        "num_beams": 4,
        "pad_token_id": 58100,
        "renormalize_logits": True,
    }
    settings = read(tmp_path, stated, seq2seq=True)

    assert settings.special_ids == SpecialIds(pad=58100, start=58100, end=0)
    assert settings.generation == Generation(
        bad_words=[[58100]],  # an end is never one
        forced_end=0,
        max_tokens=511,  # the token that it begins with counts there
        beam_size=4,
        renormalize=True,
        temperature=0,
        early_stopping=False,
    )


def test_barts_summaries(tmp_path: Path) -> None:
    stated = {
        **{"bos_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1},
        **{"early_stopping": True, "forced_bos_token_id": 0, "forced_eos_token_id": 2, "length_penalty": 2.0},
        **{"max_length": 142, "min_length": 56, "no_repeat_ngram_size": 3, "num_beams": 4},
    }
    settings = read(tmp_path, stated, seq2seq=True, task_specific_params={"summarization": {"max_length": 100}})

    assert settings.is_summarizer and settings.generation.max_tokens == 141 and settings.generation.min_tokens == 55
    assert settings.generation.early_stopping is True and settings.generation.forced_start == 0
    summary = settings.task_prompts["summarize"].generation
    assert summary is not None and (summary.max_tokens, summary.min_tokens, summary.beam_size) == (99, 55, 4)


def test_pegasus_summarizes_whatever_its_config_says_of_other_checkpoints(tmp_path: Path) -> None:
    stated = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "max_length": 64}
    others = {"summarization_aeslc": {"max_length": 32, "max_position_embeddings": 512}}
    settings = read(tmp_path, stated, seq2seq=True, task_specific_params=others)

    assert settings.is_summarizer and settings.generation.max_tokens == 63
    assert settings.task_prompts["summarize"].generation is None


def test_what_t5_is_asked_for_in_words(tmp_path: Path) -> None:
    beams = {"early_stopping": True, "num_beams": 4}
    tasks = {
        "summarization": {**beams, "max_length": 200, "min_length": 30, "prefix": "summarize: "},
        "translation_en_to_de": {**beams, "max_length": 300, "prefix": "translate English to German: "},
        "translation_en_to_fr": {**beams, "max_length": 300, "prefix": "translate English to French: "},
    }
    stated = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    settings = read(tmp_path, stated, seq2seq=True, task_specific_params=tasks)

    assert settings.task_prompts.keys() == {"summarize", "translate"} and not settings.is_summarizer
    assert settings.task_prompts["summarize"].prefix == "summarize: "
    translation = settings.task_prompts["translate"].generation
    assert translation is not None and (translation.max_tokens, translation.beam_size) == (299, 4)
    assert settings.languages is not None and settings.languages.directions == [("en", "de"), ("en", "fr")]
    assert settings.languages.prefix_of("en", "fr") == "translate English to French: "
    assert settings.generation.beam_size is None  # of other texts


def test_an_old_checkpoint_has_all_in_its_config(tmp_path: Path) -> None:
    config: dict[str, Any] = {**ENDS, "top_k": 50, "max_length": 20, "num_beams": 1, "n_embd": 32, "model_type": "gpt2"}
    settings = read(tmp_path, None, **config, task_specific_params={"text-generation": {"do_sample": True}})

    assert settings.generation == Generation(temperature=1.0, top_k=50, beam_size=1, early_stopping=False)


def test_a_checkpoint_that_says_nothing_is_greedy(tmp_path: Path) -> None:
    generation = read(tmp_path, {"_from_model_config": True, **ENDS}).generation

    assert generation == Generation(temperature=0, early_stopping=False)


@pytest.mark.parametrize("version", ["5.24.0", None])
def test_a_length_that_happens_to_be_a_default_of_before_is_the_checkpoints(
    version: str | None, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=40, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    theirs = transformers.T5ForConditionalGeneration(config)
    theirs.generation_config = transformers.GenerationConfig(
        max_length=20, min_length=20, eos_token_id=1, pad_token_id=0, decoder_start_token_id=0
    )
    theirs.save_pretrained(tmp_path)
    stated = json.loads((tmp_path / "generation_config.json").read_text()) | {"transformers_version": version}
    output = theirs.generate(torch.tensor([[3, 4, 1]]))

    assert read(tmp_path, stated, seq2seq=True).generation.max_tokens == output.shape[1] - 1 == 19


@pytest.mark.parametrize("beside", [{"transformers_version": "4.57.1"}, {"_from_model_config": True}])
def test_the_default_length_of_older_files_is_nobodys_choice(beside: dict[str, Any], tmp_path: Path) -> None:
    stated = {**ENDS, "decoder_start_token_id": 2, "max_length": 20}

    assert read(tmp_path, stated | beside, seq2seq=True).generation.max_tokens is None
    assert read(tmp_path, stated | beside | {"max_length": 21}, seq2seq=True).generation.max_tokens == 20


def test_lengths_of_a_decoder_count_the_prompt_unless_they_are_of_new_tokens(tmp_path: Path) -> None:
    lengths = {**ENDS, "max_length": 200, "min_length": 5}
    assert read(tmp_path, lengths).generation == Generation(
        max_length=200, min_length=5, temperature=0, early_stopping=False
    )

    of_new_tokens = {**lengths, "max_new_tokens": 50, "min_new_tokens": 3}
    assert read(tmp_path, of_new_tokens).generation == Generation(
        max_tokens=50, min_tokens=3, temperature=0, early_stopping=False
    )


def test_what_only_drawn_tokens_are_chosen_by_counts_only_where_they_are_drawn(tmp_path: Path) -> None:
    of_drawn = {"typical_p": 0.9, "epsilon_cutoff": 3e-4, "eta_cutoff": 3e-4, "top_h": 0.5}
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=40, n_embd=8, n_head=2, n_layer=1))
    plain, beside = (
        theirs.generate(torch.tensor([[3, 4]]), transformers.GenerationConfig(**more, max_new_tokens=8, pad_token_id=0))
        for more in ({}, of_drawn)
    )

    assert torch.equal(plain, beside)  # greedily
    assert read(tmp_path, {**ENDS, **of_drawn}).generation == read(tmp_path, ENDS).generation


def test_a_temperature_counts_only_where_tokens_are_drawn(tmp_path: Path) -> None:
    assert read(tmp_path, {**ENDS, "temperature": 0.6}).generation.temperature == 0

    drawn = read(tmp_path, {**ENDS, "do_sample": True}).generation
    assert (drawn.temperature, drawn.top_k) == (1.0, 50)  # as transformers has it where nothing is stated


def test_texts_that_end_an_output_may_be_one_or_several(tmp_path: Path) -> None:
    assert read(tmp_path, {**ENDS, "stop_strings": "Q:"}).generation.stop == ["Q:"]
    assert read(tmp_path, {**ENDS, "stop_strings": ["Q:", "A:"]}).generation.stop == ["Q:", "A:"]


def test_where_outputs_have_a_file_of_their_own_the_config_says_nothing_of_them(tmp_path: Path) -> None:
    generation = read(tmp_path, ENDS, num_beams=4, max_length=99, penalty_alpha=0.6).generation

    assert generation == Generation(temperature=0, early_stopping=False)


def test_the_end_stands_for_ids_that_are_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, {"eos_token_id": 7}).special_ids == SpecialIds(pad=7, start=7, end=7)
    with pytest.raises(CheckpointError, match="decoder_start_token_id is None; it must be one id"):
        read(tmp_path, {"eos_token_id": 7}, seq2seq=True)


@pytest.mark.parametrize(("seq2seq", "start"), [(True, 5), (False, 0)])
def test_a_decoder_alone_begins_as_its_prompts_do(seq2seq: bool, start: int, tmp_path: Path) -> None:
    stated = {**ENDS, "decoder_start_token_id": 5}

    assert read(tmp_path, stated, seq2seq=seq2seq).special_ids.start == start


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"penalty_alpha": 0.6}, "penalty_alpha is 0.6, which is not supported; only 0 is"),
        ({"num_beam_groups": 2}, "num_beam_groups is 2, which is not supported; only 1 is"),
        ({"guidance_scale": 1.5}, "guidance_scale is 1.5, which is not supported"),
        ({"typical_p": 0.9, "do_sample": True}, "typical_p is 0.9, which is not supported"),
        ({"sequence_bias": [[[5], -1.0]]}, "sequence_bias is .*, which is not supported"),
        ({"max_time": 0}, "max_time is 0, which is not supported"),
        ({"presence_penalty": 0.5}, "presence_penalty is 0.5, which is not supported; only 0 is"),
        ({"bias_of_ends": 0}, "bias_of_ends is 0, and what it means is not known"),
        ({"exponential_decay_length_penalty": [5, 1.1]}, r"exponential_decay_length_penalty is \[5, 1.1\]"),
        ({"do_sample": True, "num_beams": 4}, "beams that are drawn are not supported"),
        ({"lang_to_id": {"<|en|>": 50259}}, "lang_to_id is .*, and what it means is not known"),
        ({"top_p": 1.5}, "top_p is 1.5: Input should be less than or equal to 1"),
        ({"suppress_tokens": [1, -1]}, "suppress_tokens has -1: Input should be"),
        ({"num_beams": 0}, "generation_config.json: num_beams is 0: Input should be"),
        ({"stop_strings": 5}, "stop_strings has 5: Input should be"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0: Input should be"),
        ({"eos_token_id": [2, -1]}, r"eos_token_id is \[2, -1\]; it must be an id, or a list of them"),
        ({"bos_token_id": "<s>"}, "generation_config.json: bos_token_id is '<s>'; it must be one id"),
        ({"bos_token_id": -3}, "generation_config.json: bos_token_id is -3: Input should be"),
        ({"eos_token_id": None}, "neither generation_config.json nor config.json has an eos_token_id"),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name_and_value(
    tmp_path: Path, stated: dict[str, Any], words: str
) -> None:
    with pytest.raises(CheckpointError, match=words):
        read(tmp_path, {**ENDS, **stated})


@pytest.mark.parametrize(
    ("generation", "config", "words"),
    [
        ({"num_beams": "4"}, {}, "generation_config.json: num_beams is '4'; it must be a whole number"),
        ({"num_beams": True}, {}, "num_beams is True; it must be a whole number"),
        ({"max_length": "60"}, {}, "max_length is '60'; it must be a whole number"),
        ({"do_sample": "no"}, {}, "do_sample is 'no'; it must be true or false"),
        ({"bad_words_ids": 7}, {}, "bad_words_ids is 7; it must be a list"),
        ({"eos_token_id": ["</s>"]}, {}, "eos_token_id is .*; it must be an id, or a list of them"),
        ({"forced_eos_token_id": [1, "2"]}, {}, "forced_eos_token_id is .*; it must be an id, or a list of them"),
        ({"forced_bos_token_id": "a"}, {}, "generation_config.json: forced_bos_token_id is 'a': Input should be"),
        (
            {"force_bos_token_to_be_generated": True, "bos_token_id": -4},
            {},
            "generation_config.json: bos_token_id is -4: Input should be",
        ),
        (
            {"forced_bos_token_id": 5, "suppress_tokens": [5]},
            {},
            "forced_bos_token_id is 5, which suppress_tokens never lets come",
        ),
        (
            {"forced_eos_token_id": 5, "suppress_tokens": [5]},
            {},
            "forced_eos_token_id is 5, which suppress_tokens never lets come",
        ),
        ({"bad_words_ids": [[]]}, {}, r"generation_config\.json: .*bad_words_ids has a row without tokens"),
        ({"max_length": 1}, {}, "generation_config.json: max_length is 1; it must be at least 2"),
        ({"min_length": -2}, {}, "min_length is -2: Input should be"),
        ({"decoder_start_token_id": -1}, {}, "decoder_start_token_id is -1: Input should be"),
        ({}, {"task_specific_params": {"summarization": {"num_beams": 0}}}, r"/config\.json: num_beams is 0"),
        ({}, {"task_specific_params": {"summarization": {"low_memory": 1}}}, r"/config\.json: low_memory is 1, which"),
        ({"pad_token_id": None}, {"pad_token_id": -7}, r"/config\.json: pad_token_id is -7"),
        ({}, {"task_specific_params": ["summarization"]}, "config.json: task_specific_params is .*; it must be an"),
        ({}, {"task_specific_params": {"summarization": 4}}, "config.json: task_specific_params is .*; it must be an"),
        ({}, {"task_specific_params": {"summarization": {"prefix": 4}}}, "config.json: prefix is 4; it must be a text"),
    ],
)
def test_values_of_another_kind_are_refused_by_name(
    tmp_path: Path, generation: dict[str, Any], config: dict[str, Any], words: str
) -> None:
    with pytest.raises(CheckpointError, match=words):
        read(tmp_path, {**ENDS, **generation}, seq2seq=True, **config)


def test_what_a_config_has_before_all_texts_is_had_before_those_to_summarize(tmp_path: Path) -> None:
    task = {"task_specific_params": {"summarization": {"max_length": 100}}}
    blank = read(tmp_path, ENDS, seq2seq=True, prefix=" ", **task)
    words = read(tmp_path, ENDS, seq2seq=True, prefix="summarize: ", **task)

    assert blank.is_summarizer and blank.task_prompts["summarize"].prefix == " "
    assert not words.is_summarizer and words.task_prompts["summarize"].prefix == "summarize: "


def test_old_files_that_force_the_first_token_force_the_one_that_begins(tmp_path: Path) -> None:
    old = {**ENDS, "bos_token_id": 3, "force_bos_token_to_be_generated": True}
    assert read(tmp_path, old, seq2seq=True).generation.forced_start == 3
    assert read(tmp_path, {**old, "forced_bos_token_id": 5}, seq2seq=True).generation.forced_start == 5
    assert read(tmp_path, {**old, "force_bos_token_to_be_generated": False}).generation.forced_start is None


def test_values_that_change_nothing_are_taken(tmp_path: Path) -> None:
    neutral = {
        "penalty_alpha": None,
        "guidance_scale": 1.0,
        "num_beam_groups": 1,
        "diversity_penalty": 0.0,
        "cache_implementation": "hybrid",
        **{"generation_kwargs": {}, "forced_decoder_ids": [], "trust_remote_code": False, "presence_penalty": 0.0},
        "frequency_penalty": 0,
        **{"sequence_bias": {}, "constraints": [], "force_words_ids": []},
    }

    assert read(tmp_path, {**ENDS, **neutral}).generation == Generation(temperature=0, early_stopping=False)


@pytest.mark.parametrize(("named", "ends"), [("<|im_end|>", [8]), ("</s>", []), ("<|nowhere|>", []), (None, [])])
def test_a_turn_ends_with_the_tokenizers_end_where_that_alone_is_the_chats(
    named: str | None, ends: list[int], tmp_path: Path
) -> None:
    tokenizer = Tokenizer(models.WordLevel({"</s>": 7, "<|im_end|>": 8, "?": 0}, "?"))
    config = {"chat_template": "{{ messages[0].content }}", **({"eos_token": named} if named else {})}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    settings = read(tmp_path, {"eos_token_id": 7, "bos_token_id": 1})

    assert settings.with_turns_end(tokenizer).generation.end_ids == ends


def test_an_encoder_decoder_has_no_conversations(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}")

    assert read(tmp_path, {**ENDS, "decoder_start_token_id": 2}, seq2seq=True).chat_template is None
    assert read(tmp_path, ENDS).chat_template is not None
