"""Stop texts, found across the pieces of a stream."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from model.package import PackageTokenizer
from model.package.tokenizer import REPLACEMENT

SPARE = 8  # tokens before those that a stop text may have, of which some show nothing


class StopTexts:
    """Lets text through until a stop text appears; what may be the beginning of one is held back."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [text for text in texts if text]
        self._held = ""
        self.is_met = False

    def add(self, piece: str, *, is_last: bool = False) -> str:
        """Return the text that may be shown, without the stop text and what follows it."""
        text = self._held + piece
        found = [place for place in (text.find(stop) for stop in self._texts) if place >= 0]
        if found:
            self.is_met, self._held = True, ""
            return text[: min(found)]
        held = 0 if is_last else max((beginning_of(stop, text) for stop in self._texts), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def beginning_of(wanted: str, shown: str) -> int:
    """Return how many characters at the end of what is shown may begin a text that is wanted."""
    lengths = range(min(len(wanted) - 1, len(shown)), 0, -1)
    return next((length for length in lengths if shown.endswith(wanted[:length])), 0)


def ends_text(
    tokenizer: PackageTokenizer, texts: Sequence[str], prompt_ids: Sequence[int], min_tokens: int = 0
) -> Callable[[list[int], int], Hashable | None] | None:
    """Return what tells what ids behind a prompt show up to a stop text that the last of them completes.

    None of the others have one, and none begins within the first `min_tokens`. It decodes no more of them than a stop
    text may have tokens, each of a byte at least. None if there is no stop text.
    """
    texts = [text for text in texts if text]
    if not texts:
        return None
    tail, last = SPARE + max(len(text.encode()) for text in texts), {text[-1] for text in texts}

    def shown(ids: list[int], token: int) -> Hashable | None:
        piece = tokenizer.text_behind[token]
        if last.isdisjoint(piece) and REPLACEMENT not in piece:  # it may have the last byte of a character
            return None
        start = max(min_tokens, len(ids) - tail)
        if start > len(ids):
            return None
        before = ids[max(0, start - SPARE) : start] if start else list(prompt_ids[-SPARE:])
        text = tokenizer.decode([*before, *ids[start:], token])[len(tokenizer.decode(before)) :]
        found = [place for place in map(text.find, texts) if place >= 0]
        return (*ids[:start], text[: min(found)]) if found else None

    return shown
