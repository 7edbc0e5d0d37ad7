"""Figures of translations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from model.architectures import EncoderDecoder
from model.decoding import beam_search, next_logits
from model.evaluation.evaluate import evaluate
from model.evaluation.graph_beams import translate_batch
from model.evaluation.opened import Evaluation
from model.evaluation.translators import translate as translated
from model.export.naive import open_package
from model.package import Languages, Manifest, PackageError
from model.package.generation import Generation
from tests.conftest import TinyPackage
from tests.model.data_files import write_xz
from tests.model.evaluation.test_evaluate import copy_of, figures


def test_a_sentence_with_several_translations_is_scored_against_all_and_against_each(
    translate: TinyPackage, tmp_path: Path
) -> None:
    package, data = copy_of(translate, tmp_path), tmp_path / "data"
    languages = translate.manifest.languages
    assert languages is not None
    into_swedish = languages.model_copy(update={"directions": [("en", "sv")]})
    Manifest.load(package).model_copy(update={"languages": into_swedish}).save(package)
    pairs = [("Hi.", "Hej."), ("Hi.", "Tjena, hallå där."), ("Dan loves ice cream.", "Dan älskar glass.")]
    write_xz(data / "tatoeba_en_sv" / "test.tsv.xz", "en\tsv\n" + "".join(f"{one}\t{two}\n" for one, two in pairs))

    found = figures(package, data)

    opened = Evaluation(package, data)
    for beam_size, how in ((1, "greedy"), (4, "beam 4")):
        hi, dan = translated(opened, ["Hi.", "Dan loves ice cream."], ("en", "sv"), beam_size)
        several: list[Any] = [["Hej.", "Dan älskar glass."], ["Tjena, hallå där.", None]]
        each = [["Hej.", "Tjena, hallå där.", "Dan älskar glass."]]
        for name, score in (("sacreBLEU", sacrebleu.corpus_bleu), ("chrF", sacrebleu.corpus_chrf)):
            of_all = score([hi, dan], several).score
            assert found["tatoeba_en_sv/test", f"{name} en-sv, multi-reference, {how}"] == pytest.approx(
                of_all, abs=1e-3
            )
            of_each = score([hi, hi, dan], each).score
            key = "tatoeba_en_sv/test", f"{name} en-sv, single-reference, {how}"
            assert found[key] == pytest.approx(of_each, abs=1e-3)


def test_a_translators_card_tells_where_it_is_worse_and_what_it_says(translate: TinyPackage, tmp_path: Path) -> None:
    package, data = copy_of(translate, tmp_path), tmp_path / "data"
    languages = translate.manifest.languages
    assert languages is not None
    into_german = languages.model_copy(update={"directions": [("en", "de")]})
    Manifest.load(package).model_copy(update={"languages": into_german}).save(package)
    pairs = [("Hi.", "Hallo."), ("Hi.", "Hi!"), ("Dan loves ice cream.", "Dan liebt Eis."), ("Dan loves Dan.", "Nein.")]
    rows = "en\tde\n" + "".join(f"{one}\t{two}\n" for one, two in pairs)
    write_xz(data / "tatoeba_en_de" / "test.tsv.xz", rows)
    write_xz(data / "multi30k" / "test_2016_flickr.tsv.xz", rows)

    evaluate(package, data)

    manifest = Manifest.load(package)
    assert {part.metric for part in manifest.slices} == {"sacreBLEU en-de, single-reference, beam 4"}
    for dataset in ("tatoeba_en_de/test", "multi30k/test_2016_flickr"):
        assert sum(part.rows for part in manifest.slices if part.dataset == dataset) == len(pairs)
    told = {each.input: (each.truth, each.answer) for each in manifest.examples}
    texts = ["Hi.", "Dan loves ice cream.", "Dan loves Dan."]
    answers = translated(Evaluation(package, data), texts, ("en", "de"), 4)
    truths = ["Hallo.; Hi!", "Dan liebt Eis.", "Nein."]
    assert told == {f"en-de: {text}": each for text, each in zip(texts, zip(truths, answers, strict=True), strict=True)}
    assert {each.dataset for each in manifest.examples} == {"tatoeba_en_de/test"}  # captions are not quoted


def test_what_scores_translations_is_missed_before_anything_is_translated(
    translate: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)

    with pytest.raises(ModuleNotFoundError, match="sacrebleu"):
        evaluate(copy_of(translate, tmp_path), tmp_path)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_translations_of_a_batch_are_those_of_a_search_for_each_alone(beam_size: int, translate: TinyPackage) -> None:
    manifest, model, sources = translate.manifest, translate.model, [[5, 8, 40, 2], [6, 2], [17, 30, 9]]
    assert isinstance(model, EncoderDecoder) and manifest.special_ids.start is not None
    graphs = open_package(translate.folder, manifest)
    often = next(ids[-1] for ids in translate_batch(manifest, graphs, sources, 1) if ids)
    for end in (manifest.special_ids.end, often):  # one that may never come, and one that does
        assert end is not None
        special = manifest.special_ids.model_copy(update={"end": end})
        found = translate_batch(manifest.model_copy(update={"special_ids": special}), graphs, sources, beam_size)

        for source, ids in zip(sources, found, strict=True):
            logits, longest = next_logits(model, source), 2 * len(sources[0]) + 10
            assert ids == beam_search(logits, [manifest.special_ids.start], end, longest, beam_size)[0].ids


def test_translations_begin_with_the_token_that_is_forced_and_have_none_that_never_comes(
    translate: TinyPackage, tmp_path: Path
) -> None:
    package = copy_of(translate, tmp_path)
    ids = {"en": 7, "sv": 9}
    languages = Languages(directions=[("en", "sv")], ids=ids, source_begins_with="source", forces_target=True)
    manifest = Manifest.load(package).model_copy(update={"languages": languages})
    for beam_size in (1, 3):
        graphs = open_package(package, manifest)
        found = translate_batch(manifest, graphs, [[5, 8, 2], [6, 2]], beam_size, forced=9)
        often = max({token for ids in found for token in ids[1:]} or {9}, key=str)
        never = manifest.model_copy(update={"generation": Generation(suppress_ids=[often], bad_words=[[11]])})
        others = translate_batch(never, graphs, [[5, 8, 2], [6, 2]], beam_size, forced=9)

        assert all(ids[0] == 9 and len(ids) > 1 for ids in found)
        assert not {often, 11} & {token for ids in others for token in ids[1:]}


def test_a_translator_that_names_no_directions_is_refused(translate: TinyPackage, tmp_path: Path) -> None:
    package = copy_of(translate, tmp_path)
    languages = Languages(ids={"en": 7, "sv": 9}, source_begins_with="source", forces_target=True)
    Manifest.load(package).model_copy(update={"languages": languages}).save(package)

    with pytest.raises(PackageError, match="it names no directions; import it with --languages"):
        evaluate(package, tmp_path)


def test_a_translator_between_other_languages_has_no_test_data(translate: TinyPackage, tmp_path: Path) -> None:
    package = copy_of(translate, tmp_path)
    Manifest.load(package).model_copy(update={"languages": Languages(directions=[("de", "fr")])}).save(package)

    with pytest.raises(PackageError, match="there is no test data from de to fr"):
        evaluate(package, tmp_path)


def test_words_before_a_source_are_measured_with_it(translate: TinyPackage, tmp_path: Path) -> None:
    prefix, direction, package = "Dan loves ", ("en", "sv"), copy_of(translate, tmp_path)
    languages = Languages(directions=[direction])
    asked = languages.model_copy(update={"prefixes": {"en-sv": prefix}})
    Manifest.load(package).model_copy(update={"languages": asked}).save(package)
    found = translated(Evaluation(package, tmp_path), ["ice cream."], direction, 1)

    Manifest.load(package).model_copy(update={"languages": languages}).save(package)
    plain = Evaluation(package, tmp_path)
    assert found == translated(plain, [f"{prefix}ice cream."], direction, 1)
    assert found != translated(plain, ["ice cream."], direction, 1)
