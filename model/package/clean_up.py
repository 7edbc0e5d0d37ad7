"""Spaces that a tokenizer takes away from the text that it decodes, as those before full stops.

A tokenizer of WordPiece's decoder does so for each of its tokens. Others have files that ask for it of the whole text
(`clean_up_tokenization_spaces`); an import puts the steps behind their decoder, so that a `tokenizer.json` says it all.
Serving takes them off again (`raw`), as a text that is streamed is cleaned up piece by piece (`CleanUp`).
"""

from __future__ import annotations

import json

from tokenizers import Regex, Tokenizer, decoders

# What becomes what, one after the other, as transformers has it.
REPLACED = (
    *((f" {mark}", mark) for mark in ".?!,"),
    (" ' ", "'"),
    *((f" {end}", end) for end in ("n't", "'m", "'s", "'ve", "'re")),
)
STEPS = [decoders.Fuse(), *(decoders.Replace(*pair) for pair in REPLACED)]
# What tokens without a decoder become: a text with spaces between them.
SPACED = decoders.Sequence([decoders.Replace(Regex(r"\A"), " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
LOOSE = " '"  # what may be parted from what is replaced


def cleaned_up(text: str) -> str:
    """Return a text without the spaces that are taken away."""
    for old, new in REPLACED:
        text = text.replace(old, new)
    return text


def add_clean_up(tokenizer: Tokenizer) -> None:
    """Let a tokenizer clean up what it decodes."""
    tokenizer.decoder = decoders.Sequence([tokenizer.decoder or SPACED, *STEPS])


def raw(tokenizer: Tokenizer) -> Tokenizer | None:
    """Return a tokenizer of its own that decodes the same without cleaning up; none where this one does not."""
    state = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder else {}
    before, *steps = state.get("decoders") or [None]
    if steps != [json.loads(step.__getstate__()) for step in STEPS]:
        return None
    return Tokenizer.from_str(json.dumps({**json.loads(tokenizer.to_str()), "decoder": before}))


class CleanUp:
    """Cleans up a text that comes in pieces; the pieces together are the whole, cleaned up."""

    def __init__(self, before: str) -> None:
        """`before` is the text that the pieces continue, as it was decoded."""
        self._pending = before[_settled(before) :]  # the end that may still change
        self._shown = len(cleaned_up(self._pending))  # characters of it that were shown with what is before

    def add(self, piece: str, *, is_last: bool) -> str:
        """Return what can be shown with this piece; the rest waits for what follows, or the end."""
        text = self._pending + piece
        settled = len(text) if is_last else _settled(text)
        found, self._pending = cleaned_up(text[:settled]), text[settled:]
        shown, self._shown = self._shown, max(0, self._shown - len(found))
        return found[shown:]


def _settled(text: str) -> int:
    """Return how much of a text stays as it is, whatever follows: all up to the first space that may go.

    Behind it are only spaces and apostrophes, some of which may go, too, and the first letter of n't, 've or 're.
    """
    stop = len(text) - text.endswith(("v", "r"))
    start = len(text[:stop].rstrip(LOOSE))
    if stop == len(text) and text.endswith("n", 0, start):  # whose apostrophe may stand apart
        before = len(text[: start - 1].rstrip(LOOSE))
        if (found := text.find(" ", before, start - 1)) >= 0:
            return found
    found = text.find(" ", start, stop)
    return found if found >= 0 else len(text)
