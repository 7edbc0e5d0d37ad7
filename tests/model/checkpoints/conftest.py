"""A page in many languages, and small models of SentencePiece that were trained on it."""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer

from tests.model.checkpoints.parity import errors

PAGE = (Path(__file__).parent / "page.txt").read_text(encoding="utf-8").splitlines()
# The first article of the Universal Declaration of Human Rights; then what breaks tokenizers.
ODD = [
    "",
    " ",
    "  two  spaces  ",
    "tab\tand\nnew line",
    "Ünïcödé ﬁ ½ ① ㌔",
    "emoji 👨\u200d👩\u200d👧 🎉 end",
    "zero\u200bwidth",
    "a▁b ▁c",
    "no\u00a0break \u3000",
    "unknown ☃☃ ☃ 𝔘𝔫𝔦",
    "\U0010fffe\U0010ffff",
]
DECOMPOSED = [unicodedata.normalize("NFD", line) for line in PAGE]  # as file names of macOS have them
EVERYTHING = [*PAGE, *ODD, *DECOMPOSED]

Train = Callable[..., SentencePieceProcessor]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Return what trains a model on lines of the page and writes it into the test's folder."""

    def train_on(lines: list[str], file: str, **options: Any) -> SentencePieceProcessor:
        text = tmp_path / "training.txt"
        text.write_text("\n".join(lines * 5), encoding="utf-8")
        SentencePieceTrainer.train(
            input=str(text),
            model_prefix=str(tmp_path / "trained"),
            character_coverage=1.0,
            hard_vocab_limit=False,
            minloglevel=2,
            **{"vocab_size": 800, **options},
        )
        (tmp_path / "trained.model").rename(tmp_path / file)
        (tmp_path / "trained.vocab").unlink()
        return SentencePieceProcessor(str(tmp_path / file))

    return train_on


@pytest.fixture
def folder(checkpoints: Path, tmp_path: Path) -> Path:
    """A copy of a tiny GPT-2."""
    shutil.copytree(checkpoints / "gpt2", tmp_path / "gpt2")
    return tmp_path / "gpt2"


@pytest.fixture
def bert(checkpoints: Path, tmp_path: Path) -> Path:
    """A copy of a tiny BERT that labels texts."""
    return Path(shutil.copytree(checkpoints / "bert", tmp_path / "bert"))


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def write_json(folder: Path, **files: Any) -> None:
    """Write JSON files by their names without the ending."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def with_padding_second(tokenizer: Tokenizer) -> Tokenizer:
    """Return a WordPiece tokenizer whose padding has the id 1, as RoBERTa's and MPNet's, and whose unknown token 0."""
    content = json.loads(tokenizer.to_str())
    content["model"]["vocab"] |= {"[PAD]": 1, "[UNK]": 0}
    for token in content["added_tokens"]:
        token["id"] = content["model"]["vocab"][token["content"]]
    return Tokenizer.from_str(json.dumps(content))


def vocabulary_of(*models: SentencePieceProcessor, first: tuple[str, ...]) -> dict[str, int]:
    """Return ids for all pieces of some models, in an order that is none of theirs."""
    pieces = [
        model.id_to_piece(place)
        for model in models
        for place in reversed(range(model.get_piece_size()))
        if not model.is_control(place)
    ]
    return {token: place for place, token in enumerate(dict.fromkeys([*first, *pieces]))}


@pytest.fixture
def marian(tmp_path: Path, train: Train) -> Path:
    """The files of an OPUS-MT model: what the source knows is half of the page, what the target knows the other."""
    source = train(PAGE[:14], "source.spm", vocab_size=300)
    target = train(PAGE[14:], "target.spm", vocab_size=400)
    vocabulary = vocabulary_of(source, target, first=("</s>", "<unk>"))
    for token in (">>fra<<", ">>deu<<", "<pad>"):
        vocabulary[token] = len(vocabulary)
    write_json(tmp_path, vocab=vocabulary, tokenizer_config={"source_lang": "en", "target_lang": "mul"})
    return tmp_path


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what `make parity` is for."""
    if config.option.markexpr != "parity":
        return
    terminalreporter.section("largest relative errors beside transformers")
    for family, found in sorted(errors.items()):
        terminalreporter.write_line(f"{family:16} {len(found):4} configurations  {max(found.values()):.1e}")
