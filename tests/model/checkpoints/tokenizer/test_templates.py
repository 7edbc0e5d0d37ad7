"""What is put around texts is what transformers' models are given, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from model.checkpoints.errors import CheckpointError
from model.checkpoints.tokenizer import of_one_type, read_tokenizer, without_ends, without_last_pad
from model.package.manifest import TOKENIZER_FILE

IDS = {"[CLS]": 0, "[SEP]": 1, "[PAD]": 2, "a": 3, "?": 4}


def saved(folder: Path, processor: object, **padding: int) -> Path:
    tokenizer = Tokenizer(models.WordLevel(IDS, "?"))
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", "[PAD]"])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if processor is not None:
        tokenizer.post_processor = processor  # type: ignore[assignment]
    if padding:
        tokenizer.enable_padding(**padding)
    tokenizer.save(str(folder / TOKENIZER_FILE))
    (folder / "scratch").mkdir()
    return folder / TOKENIZER_FILE


def template(single: str, pair: str) -> processors.TemplateProcessing:
    special = [(token, number) for token, number in IDS.items() if token.startswith("[")]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)


@pytest.mark.parametrize(
    "processor",
    [
        None,
        processors.ByteLevel(),
        template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
        processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0)),
        processors.Sequence([template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")]),
    ],
)
def test_a_model_of_one_type_reads_both_texts_of_a_pair_as_that(processor: object, tmp_path: Path) -> None:
    file = saved(tmp_path, processor)
    before, after = (read_tokenizer(each) for each in (file, of_one_type(file, tmp_path / "scratch")))

    for texts in (("a",), ("a", "a a")):
        assert before.encode(*texts).ids == after.encode(*texts).ids
        assert not any(after.encode(*texts).type_ids)
    assert any(before.encode("a", "a").type_ids)


def test_a_template_that_says_so_already_stays(tmp_path: Path) -> None:
    file = saved(tmp_path, processors.RobertaProcessing(("[SEP]", 1), ("[CLS]", 0)))

    assert of_one_type(file, tmp_path / "scratch") == file
    assert without_last_pad(file, IDS["[PAD]"], tmp_path / "scratch") == file


def test_padding_behind_a_text_is_left_out_and_what_is_between_two_stays(tmp_path: Path) -> None:
    file = saved(tmp_path, template("$A [PAD]", "$A [PAD] $B:1 [PAD]:1"))
    tokenizer = read_tokenizer(without_last_pad(file, IDS["[PAD]"], tmp_path / "scratch"))

    assert tokenizer.encode("a").ids == [3] and tokenizer.encode("a", "a").ids == [3, 2, 3]


def test_padding_that_another_kind_of_processor_puts_there_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, processors.BertProcessing(("[PAD]", 2), ("[CLS]", 0)))

    with pytest.raises(CheckpointError, match="by a BertProcessing, cannot be changed"):
        without_last_pad(file, IDS["[PAD]"], tmp_path / "scratch")


def test_an_end_is_found_before_padding_to_a_length(tmp_path: Path) -> None:
    file = saved(tmp_path, template("[CLS] $A [SEP]", "$A $B"), length=8, pad_id=2)

    assert read_tokenizer(without_ends(file, {1}, tmp_path / "scratch")).encode("a").ids == [0, 3]
