"""Sample texts as a model takes them."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from model.card import Tokens
from model.export.samples import FEWEST_TOKENS, RANDOM_ROWS, SENTENCES, pairs_of, samples_of, token_rows
from model.export.verify import Rows
from model.package import Languages
from model.package.manifest import TOKENIZER_FILE
from tests.conftest import TEXTS, TinyPackage

SHORT = ["Dan loves ice cream.", "Dan älskar glass."]


def tokens_of(package: TinyPackage) -> Tokens:
    return Tokens(package.folder / TOKENIZER_FILE, package.manifest.special_ids, package.manifest.languages)


def test_each_text_goes_into_another_language_in_turn_and_ends(translate: TinyPackage) -> None:
    tokens, special = tokens_of(translate), translate.manifest.special_ids
    assert tokens.languages is not None
    samples = samples_of(translate.model.config, tokens, SHORT * 4)

    expected = [
        [*tokens.languages.first_of_source(*direction), *translate.tokenizer.encode(text).ids, special.end]
        for text, direction in zip(SHORT * 4, cycle(tokens.languages.directions), strict=False)
    ]
    assert [sample.ids for sample in samples.rows] == expected
    assert len({row[0] for row in expected}) > 1
    assert (samples.start, samples.end) == (special.start, special.end)


def test_an_output_begins_with_its_languages_token_where_that_is_forced(translate: TinyPackage) -> None:
    languages = Languages(ids={"en": 7, "sv": 9}, source_begins_with="source", forces_target=True)
    tokens = replace(tokens_of(translate), languages=languages)
    rows = samples_of(translate.model.config, tokens, SHORT).rows

    assert [(sample.ids[0], sample.forced) for sample in rows] == [(7, (9,)), (9, (7,))]


def test_a_source_that_is_too_long_is_cut_and_still_ends(translate: TinyPackage) -> None:
    config, special = translate.model.config, translate.manifest.special_ids
    (sample,) = samples_of(config, tokens_of(translate), [" ".join(TEXTS * 3)]).rows

    assert config.max_positions - 8 < len(sample.ids) <= config.max_positions
    assert sample.ids[-1] == special.end


@pytest.mark.parametrize("starts_prompts", [True, False])
def test_a_prompt_begins_with_the_start_only_where_the_service_puts_it_there(
    starts_prompts: bool, stories: TinyPackage
) -> None:
    tokens = replace(tokens_of(stories), starts_prompts=starts_prompts)
    (sample,) = samples_of(stories.model.config, tokens, SHORT[:1]).rows

    first = [stories.manifest.special_ids.start] if starts_prompts else []
    assert sample.ids == [*first, *stories.tokenizer.encode(SHORT[0]).ids]


def test_where_the_tokenizer_knows_no_word_there_are_random_ids_too(stories: TinyPackage, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    tokens = replace(tokens_of(stories), file=tmp_path / TOKENIZER_FILE)
    rows = samples_of(stories.model.config, tokens, SHORT).rows

    assert len(rows) == len(SHORT) + RANDOM_ROWS
    assert all(len(set(sample.ids)) > 9 for sample in rows[len(SHORT) :])
    assert max(token for sample in rows for token in sample.ids) < stories.model.config.vocab_size


def test_a_text_with_an_id_that_the_model_does_not_know_is_left_out(stories: TinyPackage) -> None:
    tokenizer, ids = stories.training_tokenizer, stories.tokenizer.encode("Dan").ids

    assert token_rows(tokenizer, ["Dan"], max(ids) + 1) == [ids]
    assert token_rows(tokenizer, ["Dan"], max(ids)) == []


def test_a_tokenizer_that_adds_special_tokens_knows_no_words_by_them(stories: TinyPackage, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[CLS]": 0, "[SEP]": 1, "?": 2, "ACGT": 3}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [("[CLS]", 0), ("[SEP]", 1)]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=special)
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    tokens = replace(tokens_of(stories), file=tmp_path / TOKENIZER_FILE)

    for sampled in (samples_of, pairs_of):
        ids = {
            token
            for sample in sampled(stories.model.config, tokens, SENTENCES, fewest=FEWEST_TOKENS).rows
            for token in sample.ids
        }
        assert len(ids) > 50
    assert Rows.of(stories.model, tokenizer).texts == []


def test_a_pair_that_is_too_long_is_cut(sentiment: TinyPackage) -> None:
    line = " ".join(TEXTS * 3) + "\tDan loves ice cream."
    (sample,) = pairs_of(sentiment.model.config, tokens_of(sentiment), [line]).rows

    assert len(sample.ids) == sentiment.model.config.max_positions and sample.segments is not None
    assert sample.segments[0] == 0 and sample.segments[-1] == 1


def test_a_source_whose_end_the_tokenizer_adds_ends_once(translate: TinyPackage, tmp_path: Path) -> None:
    tokens, end = tokens_of(translate), translate.manifest.special_ids.end
    assert end is not None
    tokenizer = Tokenizer.from_file(str(tokens.file))
    token = tokenizer.id_to_token(end)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {token}", special_tokens=[(token, end)])
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))

    adding = samples_of(translate.model.config, replace(tokens, file=tmp_path / TOKENIZER_FILE), SHORT)
    assert adding.rows == samples_of(translate.model.config, tokens, SHORT).rows
