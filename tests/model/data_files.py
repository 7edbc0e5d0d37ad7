"""Files of data sets in miniature, in the formats that `model.training.files` reads."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_xz(path: Path, text: str) -> None:
    """Write a compressed text, and the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text.encode()))


def write_idx(path: Path, array: NDArray[Any]) -> None:
    """Write an array of bytes in MNIST's file format, and the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


def write_named_texts(folder: Path, split: str) -> None:
    """Write texts with what they are about or for, or what their writer feels: two names of each, in turns of two."""
    files = {
        "dbpedia14_subset": ("text\tlabel", "A river.\tNaturalPlace", "A mayor.\tOfficeHolder"),
        "clinc150": ("text\tintent\tdomain", "Pay it.\tpay_bill\tbanking", "Play it.\tplay_music\thome"),
        "goemotions": ("text\temotions", "Yay!\tjoy", "No!\tanger\nHm.\tneutral\nHa!\tjoy,anger"),
    }
    for name, (columns, one, other) in files.items():
        rows = "\n".join((one, other)[number // 2 % 2] for number in range(60))
        write_xz(folder / name / f"{split}.tsv.xz", f"{columns}\n{rows}\n")


def write_spam(folder: Path) -> None:
    """Write short messages of both labels for training, validation and test."""
    rows = "Win a prize now.\tspam\nSee you at nine.\tham\n" * 10
    for split in ("train", "validation", "test"):
        write_xz(folder / "sms_spam" / f"{split}.tsv.xz", f"text\tlabel\n{rows}")


def write_csv(folder: Path, part: str, rows: list[tuple[str, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f'"{text}",{label}\r\n' for text, label in rows]  # as spreadsheets write it, with their mark before it
    (folder / f"{part}.csv").write_bytes("".join(["text,label\r\n", *lines]).encode("utf-8-sig"))
