from __future__ import annotations

from typing import Any

import pytest
from langcodes import Language
from pydantic import ValidationError

from model.package import Languages
from model.package.languages import MAX_KNOWN, standard_tag

ONE_WAY = Languages(directions=[("en", "de"), ("en", "fr"), ("fr", "de")])
ANY_TO_ANY = Languages(ids={"en": 1, "de": 2, "fr": 3})


@pytest.mark.parametrize(
    ("names", "asked", "meant"),
    [
        (("eng_Latn", "deu_Latn"), "deu_Latn", "deu_Latn"),
        (("eng_Latn", "deu_Latn"), "deu", "deu_Latn"),
        (("eng_Latn", "deu_Latn"), "de", "deu_Latn"),
        (("en", "pt"), "pt-BR", "pt"),  # another region will do
        (("pt-PT", "pt-BR"), "pt_BR", "pt-BR"),  # the same region comes before any other
        (("pt", "pt-BR"), "pt", "pt"),  # its own name before what begins like it
        (("pt-PT", "pt-BR"), "pt", None),  # which of the two nothing tells
        (("zho_Hans", "zho_Hant"), "zh", "zho_Hans"),  # the likely script
        (("zho_Hans", "zho_Hant"), "zh-TW", "zho_Hant"),
        (("ace_Arab", "ace_Latn"), "ace", "ace_Latn"),
        (("nob_Latn", "nno_Latn"), "no", "nob_Latn"),
        (("en", "no"), "nb", "no"),
        (("en", "no"), "nn", "no"),
        (("en", "no"), "da", None),
        (("en", "de"), "tlh", None),
        (("en", "de"), "no language", None),
    ],
)
def test_a_language_is_known_by_all_its_names_where_they_mean_one_alone(
    names: tuple[str, ...], asked: str, meant: str | None
) -> None:
    assert Languages(ids={name: place for place, name in enumerate(names)}).known_as(asked) == meant


def test_codes_are_the_shortest_tags_that_mean_one_language_alone() -> None:
    names = ["eng_Latn", "zho_Hans", "zho_Hant", "pt", "pt_BR", "nobodys"]
    languages = Languages(ids={name: place for place, name in enumerate(names)})

    assert list(languages.codes.values()) == ["en", "zh-Hans", "zh-Hant", "pt", "pt-BR", "nobodys"]
    assert [languages.known_as(code) for code in languages.codes.values()] == names


def test_a_language_that_is_commonly_called_by_the_name_of_several_is_known_by_it() -> None:
    codes = {
        **{"arb_Arab": "ar", "arz_Arab": "arz", "pes_Arab": "fa", "prs_Arab": "fa-AF", "lvs_Latn": "lv"},
        **{"nob_Latn": "nb", "nno_Latn": "nn", "zho_Hans": "zh", "aka_Latn": "ak", "twi_Latn": "tw"},
    }
    languages = Languages(ids={name: place for place, name in enumerate(codes)})

    assert languages.codes == codes
    assert {languages.known_as(code): code for code in codes.values()} == codes
    assert languages.known_as("cmn") == "zho_Hans"
    assert languages.known_as("fa-IR") is None  # whichever it is, it is not Dari


def test_without_directions_it_translates_from_any_language_to_any_other() -> None:
    assert ANY_TO_ANY.translates("en", "de") and ANY_TO_ANY.translates("fr", "en")
    assert not any(ANY_TO_ANY.translates(*pair) for pair in (("en", "en"), ("en", "sv"), ("sv", "en"), (None, "en")))
    assert ANY_TO_ANY.sources_for("de") == ["en", "fr"] and ANY_TO_ANY.targets_of("en") is None
    assert ANY_TO_ANY.sources == ANY_TO_ANY.targets == ANY_TO_ANY.names == ["en", "de", "fr"]


def test_a_direction_holds_one_way() -> None:
    assert ONE_WAY.translates("en", "de") and not ONE_WAY.translates("de", "en")
    assert (ONE_WAY.sources, ONE_WAY.targets, ONE_WAY.names) == (["en", "fr"], ["de", "fr"], ["en", "fr", "de"])
    assert ONE_WAY.targets_of("en") == ["de", "fr"] and ONE_WAY.targets_of("de") == []


@pytest.mark.parametrize(
    ("source", "target", "can"),
    [
        *(("en", "de", True), ("eng", "deu", True), (None, "de", True)),
        *((None, "en", False), ("de", "en", False), ("sv", "de", False), ("en", "sv", False)),
    ],
)
def test_whether_it_can_translate_does_not_depend_on_how_languages_are_spelt(
    source: str | None, target: str, can: bool
) -> None:
    assert Languages(directions=[("eng_Latn", "deu_Latn")]).can_translate(source, target) == can


@pytest.mark.parametrize(
    ("begins", "forces", "before_source", "first_of_target"),
    [("source", True, [1], 2), ("target", False, [2], None), (None, True, [], 2), (None, False, [], None)],
)
def test_the_languages_tokens_stand_where_the_model_expects_them(
    begins: Any, forces: bool, before_source: list[int], first_of_target: int | None
) -> None:
    languages = Languages(ids={"en": 1, "de": 2}, source_begins_with=begins, forces_target=forces)

    assert languages.first_of_source("en", "de") == before_source
    assert languages.first_of_target("de") == first_of_target
    assert languages.needs_source == (begins == "source")


def test_words_before_a_source_are_those_of_its_direction() -> None:
    languages = Languages(directions=[("en", "fr"), ("fr", "en")], prefixes={"en-fr": "to French: "})

    assert (languages.prefix_of("en", "fr"), languages.prefix_of("fr", "en")) == ("to French: ", "")
    assert languages.needs_source


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "neither directions nor two languages with ids"),
        ({"directions": [("en", "de")], "ids": {"de": 2}, "source_begins_with": "source"}, "ids lacks en "),
        ({"directions": [("en", "de")], "ids": {"en": 1}, "forces_target": True}, "ids lacks de "),
        ({"directions": [("en", "de")], "source_begins_with": "source", "forces_target": True}, "ids lacks de, en "),
    ],
)
def test_a_language_whose_token_is_needed_must_have_one(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Languages(**values)


@pytest.mark.parametrize("name", ["de evil\nen>fr", "de\n", "d" * 33, "", "de fr", "größe"])
def test_a_language_is_called_by_one_short_word(name: str) -> None:
    for values in ({"directions": [("en", name)]}, {"directions": [(name, "en")]}, {"ids": {"en": 1, name: 2}}):
        with pytest.raises(ValidationError, match="should match pattern"):
            Languages.model_validate(values)


def test_tags_that_anybody_asks_for_are_not_kept_for_ever() -> None:
    for number in range(MAX_KNOWN + 100):
        standard_tag(f"fr-x-a{number:07x}")

    assert len(Language._PARSE_CACHE) <= MAX_KNOWN and len(Language._INSTANCES) <= MAX_KNOWN + 3
    assert standard_tag("deu_Latn") == "de"
