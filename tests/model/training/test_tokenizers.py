from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from model.training.tokenizers import BERT_SPECIALS, END_OF_TEXT, train_bpe, train_wordpiece
from tests.conftest import TEXTS

ROOT = Path(__file__).parents[3]


def test_wordpiece_marks_what_continues_a_word() -> None:
    tokenizer = train_wordpiece(TEXTS, 90)
    tokens = tokenizer.encode("Garden").tokens

    assert tokens[0] == "[CLS]" and tokens[-1] == "[SEP]"
    assert not tokens[1].startswith("##") and all(token.startswith("##") for token in tokens[2:-1])
    assert tokenizer.decode(tokenizer.encode("Garden").ids) == "garden"


def test_a_pair_has_two_segments() -> None:
    encoding = train_wordpiece(TEXTS, 90).encode("good", "dog")

    assert encoding.tokens.count("[SEP]") == 2
    assert encoding.type_ids[0] == 0 and encoding.type_ids[-1] == 1


def test_byte_level_bpe_gives_every_text_back() -> None:
    tokenizer = train_bpe(TEXTS, 300, [END_OF_TEXT])

    for text in ("Dan älskar glass.", "日本 🙂", " two  spaces", "a\nb"):
        assert tokenizer.decode(tokenizer.encode(text).ids).strip() == text.strip()


def test_the_same_texts_make_the_same_tokenizer_in_every_process() -> None:
    code = f"from model.training.tokenizers import train_wordpiece; print(train_wordpiece({TEXTS!r}, 90).to_str())"
    command = [sys.executable, "-c", code]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )

    assert first == second
    assert [token["content"] for token in json.loads(first)["added_tokens"]] == BERT_SPECIALS
