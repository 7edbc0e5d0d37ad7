from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import numpy as np

from model.training import readers
from model.training.data import read_idx_pair


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text.encode()))


def test_sentences_end_where_the_next_begins() -> None:
    assert readers.sentences_of('He ran. "Stop!" she cried. It was 3.5 km away.\nThe end') == [
        *("He ran.", '"Stop!"', "she cried.", "It was 3.5 km away.", "The end")
    ]


def test_wikipedia_is_read_by_articles_and_without_marks(tmp_path: Path) -> None:
    wikitext = " = One = \n \n A well @-@ known <unk> . \n = = Part = = \n More . \n = Two = \n Text . \n"
    write(tmp_path / "wikitext2" / "validation.txt.xz", wikitext)
    write(
        tmp_path / "squad11" / "dev.jsonl.xz", json.dumps({"title": "T", "context": "It is so. Yes.", "qas": []}) + "\n"
    )
    write(tmp_path / "books_pd" / "validation.jsonl.xz", json.dumps({"text": "A chapter."}) + "\n")

    documents = [document for document in readers.read_documents(tmp_path, "validation") if document]
    assert documents == [["It is so.", "Yes."], ["A well-known [UNK] .", "More ."], ["Text ."], ["A chapter."]]


def test_entities_of_unknown_kinds_count_as_none(tmp_path: Path) -> None:
    write(tmp_path / "wikigold" / "all.conll.xz", "Dan\tB-PER\nrock\tB-MISC\n\nParis\tB-LOC\n")

    assert readers.read_entities(tmp_path, "validation") == [(["Dan", "rock"], ["B-PER", "O"])]


def test_validation_questions_are_about_other_articles(tmp_path: Path) -> None:
    qas = [{"question": "Who?", "answers": [{"text": "Dan", "answer_start": 0}]}]
    rows = [{"title": f"T{index}", "context": f"Dan {index}", "qas": qas} for index in range(20)]
    write(tmp_path / "squad11" / "train.jsonl.xz", "".join(json.dumps(row) + "\n" for row in rows))

    train, validation = (readers.read_questions(tmp_path, split) for split in ("train", "validation"))
    assert (len(train), len(validation)) == (5, 15)
    assert not {row.context for row in train} & {row.context for row in validation}


def test_images_are_read_from_mnists_file_format(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    header = bytes([0, 0, 8, 3]) + np.array(images.shape, ">i4").tobytes()
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
    labels = bytes([0, 0, 8, 1]) + np.array([2], ">i4").tobytes() + bytes([7, 9])
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))

    found, numbers = read_idx_pair(tmp_path, "t10k")
    assert np.array_equal(found, images)
    assert numbers.tolist() == [7, 9]
