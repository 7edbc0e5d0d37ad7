"""What each token writes, as bytes, by the decoder of a tokenizer: a text is the tokens' bytes one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

SPACE = "▁"  # how SentencePiece's vocabularies write a space
BYTE_TOKEN_LENGTH = len("<0x00>")

Decoding = dict[str, Any]  # a decoder as its tokenizer.json has it
Write = Callable[[str], bytes]


class NoBytes(Exception):
    """A tokenizer joins its tokens by rules that look at more than each of them; the message says which."""


@dataclass(frozen=True)
class TokenBytes:
    """What each token id writes; none for special tokens, which no text shows."""

    texts: list[bytes | None]
    drops_space: bool  # a space that a text begins with is not shown


def writing(tokenizer: Tokenizer) -> tuple[Write, bool]:
    """Return what writes a token, unless it is special, and whether a text's first space is left out.

    Raises `NoBytes` where a token alone does not say what it writes.
    """
    if tokenizer.decoder is None:
        raise NoBytes("its tokens are joined by spaces")
    return _reading(_parts(json.loads(tokenizer.decoder.__getstate__())))


def token_bytes(tokenizer: Tokenizer) -> TokenBytes:
    """Return what each token writes; raises `NoBytes` where a token alone does not say it."""
    write, drops_space = writing(tokenizer)
    special = {token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special}
    vocabulary = tokenizer.get_vocab()
    texts: list[bytes | None] = [None] * (1 + max(vocabulary.values(), default=-1))  # some ids are no token's
    for token, token_id in vocabulary.items():
        if token_id not in special:
            texts[token_id] = write(token) or None
    return TokenBytes(texts, drops_space)


def _parts(decoding: Decoding) -> list[Decoding]:
    return decoding["decoders"] if decoding["type"] == "Sequence" else [decoding]


def _reading(parts: list[Decoding]) -> tuple[Write, bool]:
    kinds = [part["type"] for part in parts]
    if kinds in (["ByteLevel"], ["ByteLevel", "Strip"]):
        return _byte_level(), kinds[-1] == "Strip" and _strips_a_space(parts[-1])
    if kinds == ["Metaspace"]:
        drops = parts[0].get("prepend_scheme", "always") != "never"
        return (_metaspace_once if drops else _metaspace), drops
    if kinds in (["Replace", "ByteFallback", "Fuse"], ["Replace", "ByteFallback", "Fuse", "Strip"]) and (
        parts[0]["pattern"] == {"String": SPACE} and parts[0]["content"] == " "
    ):
        return _with_bytes, kinds[-1] == "Strip" and _strips_a_space(parts[-1])
    raise NoBytes(f"its decoder is {' + '.join(kinds)}")


def _strips_a_space(part: Decoding) -> bool:
    if (part["content"], part["start"], part["stop"]) != (" ", 1, 0):
        raise NoBytes(f"its decoder strips {part['content']!r}")
    return True


def _metaspace(token: str) -> bytes:
    return token.replace(SPACE, " ").encode()


def _metaspace_once(token: str) -> bytes:
    # The decoder leaves out all spaces of a text's first token; of one with a single space that is the first one.
    return b"" if SPACE in token[1:] else _metaspace(token)


def _with_bytes(token: str) -> bytes:
    if len(token) == BYTE_TOKEN_LENGTH and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes([int(token[3:5], 16)])
        except ValueError:
            pass
    return _metaspace(token)


def _byte_level() -> Write:
    """Return how GPT-2's byte-level BPE is written: a character of its alphabet for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}

    def write(token: str) -> bytes:
        if all(character in byte_of for character in token):
            return bytes(byte_of[character] for character in token)
        return token.encode()  # an added token

    return write
