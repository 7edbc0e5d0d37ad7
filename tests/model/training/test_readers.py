from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.training import nli, readers, sentiment
from model.training.errors import DataError
from model.training.files import read_idx_pair
from tests.model.data_files import write_idx, write_named_texts, write_xz


def test_sentences_end_where_the_next_begins() -> None:
    assert readers.sentences_of('He ran. "Stop!" she cried. It was 3.5 km away.\nThe end') == [
        *("He ran.", '"Stop!"', "she cried.", "It was 3.5 km away.", "The end")
    ]


def test_wikipedia_is_read_by_articles_and_without_marks(tmp_path: Path) -> None:
    wikitext = " = One = \n \n A well @-@ known <unk> . \n = = Part = = \n More . \n = Two = \n Text . \n"
    write_xz(tmp_path / "wikitext2" / "validation.txt.xz", wikitext)
    write_xz(
        tmp_path / "squad11" / "dev.jsonl.xz", json.dumps({"title": "T", "context": "It is so. Yes.", "qas": []}) + "\n"
    )
    for folder, text in (("books_pd", "A chapter."), ("openstax_ccby", "A section.")):
        write_xz(tmp_path / folder / "validation.jsonl.xz", json.dumps({"text": text}) + "\n")

    documents = [document for document in readers.read_documents(tmp_path, "validation") if document]
    assert documents == [
        ["It is so.", "Yes."],
        ["A well-known [UNK] .", "More ."],
        ["Text ."],
        ["A chapter."],
        ["A section."],
    ]


def test_entities_of_unknown_kinds_count_as_none(tmp_path: Path) -> None:
    write_xz(tmp_path / "wikigold" / "all.conll.xz", "Dan\tB-PER\nrock\tB-MISC\n\nParis\tB-LOC\n")

    assert readers.read_entities(tmp_path, "validation") == [(["Dan", "rock"], ["B-PER", "O"])]


def test_what_is_tested_on_is_neither_trained_nor_validated_on(tmp_path: Path) -> None:
    write_xz(tmp_path / "wikigold" / "all.conll.xz", "".join(f"word{index}\tO\n\n" for index in range(30)))
    for section in "abeg":
        write_xz(tmp_path / "btc" / f"section_{section}.conll.xz", f"tweet{section}\tO\n\nWord5\tO\n")
    write_xz(tmp_path / "wnut17" / "train.conll.xz", "post\tO\n\nnews\tO\n")
    write_xz(tmp_path / "wnut17" / "test.conll.xz", "News\tO\n")

    found = {
        split: [words[0] for words, _ in readers.read_entities(tmp_path, split)]
        for split in ("train", "validation", "test")
    }

    assert found["validation"] == ["word0", "word10", "word20"] and found["test"] == ["word5", "word15", "word25"]
    assert len(found["train"]) == 30 - 6 + 4 + 1
    assert not set(map(str.lower, found["train"])) & {*found["validation"], *found["test"], "news"}


def test_entities_of_social_media_have_our_kinds(tmp_path: Path) -> None:
    tags = ["B-person", "B-corporation", "I-corporation", "B-group", "B-location", "B-product", "O"]
    write_xz(tmp_path / "wnut17" / "test.conll.xz", "".join(f"w\t{tag}\n" for tag in tags))

    ((_, found),) = readers.read_emerging_entities(tmp_path)
    assert found == ["B-PER", "B-ORG", "I-ORG", "B-ORG", "B-LOC", "O", "O"]


def test_lines_of_words_and_tags_may_end_as_on_windows(tmp_path: Path) -> None:
    write_xz(tmp_path / "wnut17" / "test.conll.xz", "Dan\tB-person\r\nsings\tO\r\n\r\nYes\tO\r\n")

    assert readers.read_emerging_entities(tmp_path) == [(["Dan", "sings"], ["B-PER", "O"]), (["Yes"], ["O"])]


def test_tags_that_nobody_knows_are_told_and_those_left_out_on_purpose_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "wnut17" / "test.conll.xz"
    write_xz(path, "a\tB-product\nb\tB-creative-work\nc\tI-MISC\n")
    readers.read_emerging_entities(tmp_path)
    assert not caplog.text

    write_xz(path, "Dan\tS-person\nacid\tB-DRUG\nsalt\tB-DRUG\n")
    assert readers.read_emerging_entities(tmp_path) == [(["Dan", "acid", "salt"], ["O"] * 3)]
    assert "count as O: B-DRUG (2), S-person (1)" in caplog.text


NAMES = ("natural place", "office holder", "pay bill", "banking", "joy", "neutral", "Old Rome")


def test_entailment_is_learned_without_what_may_not_be_sold(tmp_path: Path) -> None:
    rows = [("A dog.", "An animal.", "entailment", "cad"), ("A dog.", "A cat.", "contradiction", "sick")]
    text = "premise\thypothesis\tlabel\tsource\n" + "".join("\t".join(row) + "\n" for row in rows)
    for file in ("train", "test_snli"):
        write_xz(tmp_path / "nli_mix" / f"{file}.tsv.xz", text)

    assert nli.read_entailment(tmp_path, "train") == [(("A dog.", "An animal."), 0)]
    assert [label for _, label in nli.read_entailment_file(tmp_path, "test_snli")] == [0, 2]


def test_a_label_is_a_hypothesis_that_follows_and_another_one_that_contradicts(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        write_named_texts(tmp_path, split)
        pair = "A dog.\tAn animal.\tentailment\tcad\n"
        write_xz(tmp_path / "nli_mix" / f"{split}.tsv.xz", f"premise\thypothesis\tlabel\tsource\n{pair}")
    articles: list[dict[str, Any]] = [
        {"title": title, "context": f"{title}!", "qas": []} for title in ("Old_Rome", "Computer") * 6
    ]
    write_xz(tmp_path / "squad11" / "train.jsonl.xz", "\n".join(map(json.dumps, articles)))

    (first, _), *train = nli.read_hypotheses(tmp_path, "train")
    validation = nli.read_hypotheses(tmp_path, "validation")

    assert first == ("A dog.", "An animal.") and len(train) > 5 * len(validation) > 0
    said = {(text, label, name) for (text, hypothesis), label in train for name in NAMES if name in hypothesis}
    assert ("A river.", 0, "natural place") in said and ("A river.", 2, "office holder") in said
    assert ("Pay it.", 0, "pay bill") in said and ("Pay it.", 0, "banking") in said and ("Yay!", 0, "joy") in said
    assert ("Old_Rome!", 0, "Old Rome") in said and ("Hm.", 0, "neutral") not in said
    assert [label for _, label in train] == [0, 2] * (len(train) // 2)


def test_words_without_tags_are_refused(tmp_path: Path) -> None:
    write_xz(tmp_path / "wikigold" / "all.conll.xz", "Dan\tB-PER\nsings O\n")

    with pytest.raises(DataError, match=r"all\.conll\.xz, line 2: there is no TAB between a word and its tag"):
        readers.read_entities(tmp_path, "validation")


def test_validation_questions_are_about_other_articles(tmp_path: Path) -> None:
    qas = [{"question": "Who?", "answers": [{"text": "Dan", "answer_start": 0}]}]
    rows = [{"title": f"T{index}", "context": f"Dan {index}", "qas": qas} for index in range(20)]
    write_xz(tmp_path / "squad11" / "train.jsonl.xz", "".join(json.dumps(row) + "\n" for row in rows))

    train, validation = (readers.read_questions(tmp_path, split) for split in ("train", "validation"))
    assert (len(train), len(validation)) == (5, 15)
    assert not {row.context for row in train} & {row.context for row in validation}


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"question": "Who?", "answers": []}, "'Who?' has no answer"),
        ({"question": "Who?", "answers": [{"text": "", "answer_start": 0}]}, "does not stand at character 0"),
        ({"question": "Who?", "answers": [{"text": "sings", "answer_start": 5}]}, "'sings' to 'Who?' does not stand"),
        ({"question": "Who?", "answers": [{"text": "Dan"}]}, "of its qas has no answer_start"),
        ({"answers": []}, "of its qas has no question"),
    ],
)
def test_questions_without_an_answer_in_their_paragraph_are_refused(
    asked: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    row = {"title": "T", "context": "Dan sings.", "qas": [asked]}
    write_xz(tmp_path / "squad11" / "dev.jsonl.xz", json.dumps(row) + "\n")

    with pytest.raises(DataError, match=rf"dev\.jsonl\.xz, line 1: .*{re.escape(problem)}"):
        readers.read_questions(tmp_path, "test")


def test_images_are_read_from_mnists_file_format(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(tmp_path / "t10k-images-idx3-ubyte.gz", images)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.array([7, 9]))

    found, numbers = read_idx_pair(tmp_path, "t10k")
    assert np.array_equal(found, images)
    assert numbers.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (
            (2, 32, 32),
            [0, 1],
            r"t10k-images-idx3-ubyte\.gz: it holds 2 × 32 × 32 bytes; images are grey, 28 × 28",
        ),
        ((2, 28, 28, 3), [0, 1], "it holds 2 × 28 × 28 × 3 bytes"),
        ((2, 28, 28), [0, 12], r"t10k-labels-idx1-ubyte\.gz: label 2 is 12; labels are 0 to 9"),
        ((2, 28, 28), [0], r"t10k-labels-idx1-ubyte\.gz: it holds 1 labels; there are 2 images, with one each"),
    ],
)
def test_images_and_labels_that_do_not_fit_are_refused_by_file(
    tmp_path: Path, images: tuple[int, ...], labels: list[int], message: str
) -> None:
    write_idx(tmp_path / "fashion_mnist" / "t10k-images-idx3-ubyte.gz", np.zeros(images))
    write_idx(tmp_path / "fashion_mnist" / "t10k-labels-idx1-ubyte.gz", np.array(labels))

    with pytest.raises(DataError, match=message):
        readers.read_clothes(tmp_path, "test")


def test_images_of_which_all_are_kept_for_validation_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx(tmp_path / "fashion_mnist" / "train-images-idx3-ubyte.gz", np.zeros((3, 28, 28)))
    write_idx(tmp_path / "fashion_mnist" / "train-labels-idx1-ubyte.gz", np.array([0, 1, 2]))

    with pytest.raises(DataError, match=r"train-images.*: it holds 3 images; there must be more than 5,000"):
        readers.read_clothes(tmp_path, "train")
    monkeypatch.setattr(readers, "VALIDATION_IMAGES", 2)
    assert [label for _, label in readers.read_clothes(tmp_path, "train")] == [0]


def test_phrases_and_reviews_that_are_tested_on_are_not_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentiment, "VALIDATION_REVIEWS", 1)
    for file, texts in (
        ("sst2/train_phrases.tsv.xz", ["good film", "What's next?", "so dull"]),
        ("sst2/dev.tsv.xz", ["so dull ."]),
        ("sst2/test.tsv.xz", ["what's next ?"]),
    ):
        write_xz(tmp_path / file, "text\tlabel\n" + "".join(f"{text}\t1\n" for text in texts))
    for file, texts in (
        ("imdb/train.jsonl.xz", ["Held out.", "Sent twice!", "Fine."]),
        ("imdb/test.jsonl.xz", ["sent twice"]),
        ("imdb/unlabelled.jsonl.xz", ["So dull!", "Long."]),
    ):
        write_xz(tmp_path / file, "".join(json.dumps({"text": text, "label": 1}) + "\n" for text in texts))

    assert [text for text, _ in sentiment.read_sentiment(tmp_path, "train")] == ["good film", "Fine."]
    assert sentiment.read_reviews(tmp_path, "train") == [["Fine."], ["Long."]]
    assert [text for text, _ in sentiment.read_sentiment(tmp_path, "validation")] == ["so dull .", "Held out."]


def test_translations_are_read_both_ways_and_nothing_tested_is_learned_as_an_answer(tmp_path: Path) -> None:
    english = {"train": ["I see.", "Hello!", "Bye."], "validation": ["Yes."], "test": ["No."]}
    for language in readers.LANGUAGES:
        for split, texts in english.items():
            content = "".join(f"{text}\t{language} {text}\n" for text in texts)
            if (language, split) == ("fr", "test"):
                content += "hello\tfr hello\n"  # which is trained on in other languages
            write_xz(tmp_path / f"tatoeba_en_{language}" / f"{split}.tsv.xz", f"en\t{language}\n{content}")

    rows = readers.read_pairs_both_ways(tmp_path, "train")
    mostly_there = readers.read_mostly_pairs_from_english(tmp_path, "train")

    for read in (rows, mostly_there):
        assert {target for language, _, target in read if language == "en"} == {"I see.", "Bye."}
    assert len([row for row in rows if row[0] != "en"]) == 3 + 3 + 9
    assert rows.count(("en", "de I see.", "I see.")) == 1 and rows.count(("en", "sv I see.", "I see.")) == 3
    assert ("sv", "Hello!", "sv Hello!") in rows
    assert mostly_there.count(("sv", "I see.", "sv I see.")) == 3
    assert mostly_there.count(("en", "sv I see.", "I see.")) == 1
    validation = readers.read_pairs_both_ways(tmp_path, "validation")
    assert ("de", "Yes.", "de Yes.") in validation and ("en", "de Yes.", "Yes.") in validation


def test_an_eighth_of_the_pairs_is_joined_with_another_of_the_same_languages(tmp_path: Path) -> None:
    for language in readers.LANGUAGES:
        content = "".join(f"e{number}\t{language}{number}\n" for number in range(64))
        for split in ("train", "validation", "test"):
            rows = content if split == "train" else ""
            write_xz(tmp_path / f"tatoeba_en_{language}" / f"{split}.tsv.xz", f"en\t{language}\n{rows}")

    read = readers.read_pairs_from_english_and_some_back(tmp_path, "train")

    joined = [row for row in read if " " in row[1]]
    there = [row for row in read if row[0] != "en"]
    assert len(there) == 64 + 64 + 3 * 64 and len([row for row in joined if row[0] != "en"]) == len(there) // 8
    assert len(read) - len(there) == 21 + 21 + 64
    for language, source, target in joined:
        kinds = {text.rstrip("0123456789") for text in (source + " " + target).split()}
        assert len(kinds) == 2 and "e" in kinds
        assert [text.strip("edfrsv") for text in source.split()] == [text.strip("edfrsv") for text in target.split()]
        assert (language == "en") == target.startswith("e")


@pytest.mark.parametrize(
    "read", [readers.read_spam, readers.read_clothes, readers.read_entities, readers.read_documents]
)
def test_a_data_set_that_is_not_there_is_named(read: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path}/.*: there is no such file"):
        read(tmp_path, "train")
