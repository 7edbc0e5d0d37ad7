"""What a tokenizer puts around texts, changed to what a model needs of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from itertools import takewhile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors

from model.checkpoints.errors import CheckpointError
from model.checkpoints.tokenizer.find import parts_of, read_tokenizer
from model.package.manifest import TOKENIZER_FILE

SEPARATORS = frozenset({"[SEP]", "<sep>"})


def without_ends(file: Path, ends: Collection[int], scratch: Path) -> Path:
    """Return a `tokenizer.json` that adds neither an end nor a separator behind a text; it may be the same file.

    What a decoder goes on with is not ended: behind the end of a text it begins another.
    """
    tokenizer = read_tokenizer(file)
    encoding = tokenizer.encode("a")
    added = [
        token if special else None for token, special in zip(encoding.tokens, encoding.special_tokens_mask, strict=True)
    ]
    if not added or added[-1] is None or (encoding.ids[-1] not in ends and added[-1] not in SEPARATORS):
        return file
    before = list(takewhile(bool, added))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*before, "$A"], special_tokens=list(zip(before, encoding.ids, strict=False))
    )
    tokenizer.save(str(scratch / TOKENIZER_FILE))
    return scratch / TOKENIZER_FILE


def without_last_pad(file: Path, pad: int, scratch: Path) -> Path:
    """Return a `tokenizer.json` that puts no padding behind a text or a pair; it may be the same file.

    A decoder's head reads the last token that is no padding, in transformers. Nothing looks at what stands behind it.
    Raises `CheckpointError` where it cannot be left out.
    """
    if read_tokenizer(file).encode("a").ids[-1:] != [pad]:
        return file
    content = json.loads(file.read_text(encoding="utf-8"))
    for template in _templates(content["post_processor"]):
        ids = {name: token["ids"] for name, token in template["special_tokens"].items()}
        for items in (template["single"], template["pair"]):
            while items and ids.get(items[-1].get("SpecialToken", {}).get("id")) == [pad]:
                items.pop()
    return _changed(file, content, scratch, lambda tokenizer: tokenizer.encode("a").ids[-1:] != [pad])


def of_one_type(file: Path, scratch: Path) -> Path:
    """Return a `tokenizer.json` by which all tokens of a pair are of the first type; it may be the same file.

    Raises `CheckpointError` where that cannot be.
    """
    if not any(read_tokenizer(file).encode("a", "a").type_ids):
        return file
    content = json.loads(file.read_text(encoding="utf-8"))
    processor, made = content["post_processor"], read_tokenizer(file)
    if not _templates(processor) and (processor is None or processor["type"] == "ByteLevel"):
        plain = processors.TemplateProcessing(single="$A", pair="$A $B:0", special_tokens=[])
        made.post_processor = processors.Sequence([made.post_processor, plain]) if processor else plain
        content = json.loads(made.to_str())
    elif processor["type"] == "BertProcessing":  # which can do nothing else
        (sep, _), (cls, _) = processor["sep"], processor["cls"]
        made.post_processor = processors.TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=f"{cls} $A {sep} $B:0 {sep}",
            special_tokens=[tuple(processor["cls"]), tuple(processor["sep"])],
        )
        content = json.loads(made.to_str())
    for template in _templates(content["post_processor"]):
        for item in (*template["single"], *template["pair"]):
            next(iter(item.values()))["type_id"] = 0
    return _changed(file, content, scratch, lambda tokenizer: not any(tokenizer.encode("a", "a").type_ids))


def _templates(processor: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the templates of a post-processor, which may be several or none."""
    return [part for part in parts_of(processor, "processors") if part["type"] == "TemplateProcessing"]


def _changed(file: Path, content: dict[str, Any], scratch: Path, holds: Callable[[Tokenizer], bool]) -> Path:
    changed = scratch / TOKENIZER_FILE
    changed.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    if not holds(read_tokenizer(changed)):
        kind = content["post_processor"]["type"]
        raise CheckpointError(
            f"{file}: what is put around texts, by a {kind}, cannot be changed as this model needs it"
        )
    return changed
