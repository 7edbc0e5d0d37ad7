"""Stop texts, found across the pieces of a stream."""

from __future__ import annotations

from collections.abc import Sequence


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
