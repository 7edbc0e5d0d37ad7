"""Token ids → text, a piece at a time."""

from __future__ import annotations

from collections.abc import Sequence

from model.package.clean_up import CleanUp
from model.package.tokenizer import REPLACEMENT, PackageTokenizer

MAX_HELD = 16  # ids that show nothing yet
UNFINISHED = 3  # bytes of a character, at most, that may lack others; no id is less than one


class Detokenizer:
    """Turns a growing list of ids into text piece by piece; the pieces together are the text of the whole."""

    def __init__(self, tokenizer: PackageTokenizer, prefix_ids: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        # Only the last few ids are decoded again each time; the window starts where text last came out whole.
        self._window = list(prefix_ids[-8:])
        before = tokenizer.decode_raw(self._window)
        self._shown = len(before)
        self._clean_up = CleanUp(before) if tokenizer.cleans_up else None
        self._keep_from = len(self._window)

    @property
    def begins(self) -> bool:
        """Whether no text stands before the next ids."""
        return not self._shown

    def add(self, ids: Sequence[int], *, is_last: bool = False) -> str:
        """Return the new text that these ids add; an unfinished character waits for its other bytes, or the end.

        So does a space that what follows may take away.
        """
        piece = self._raw(ids, is_last=is_last)
        return piece if self._clean_up is None else self._clean_up.add(piece, is_last=is_last)

    def _raw(self, ids: Sequence[int], *, is_last: bool) -> str:
        """Return the new text before it is cleaned up. No character waits for ever: all that waits is decoded again."""
        self._window += ids
        text = self._tokenizer.decode_raw(self._window)
        piece, held = text[self._shown :], len(self._window) - self._keep_from
        if not piece:
            if held > MAX_HELD:
                del self._window[self._keep_from : -MAX_HELD // 2]
            return ""
        if text.endswith(REPLACEMENT) and not is_last:
            return self._finished() if held > MAX_HELD else ""
        self._go_on(len(self._window))
        return piece

    def _finished(self) -> str:
        """Return the text before a character that is not finished, or of broken bytes all but the last."""
        for pending in range(1, UNFINISHED + 1):
            text = self._tokenizer.decode_raw(self._window[:-pending])
            if not text.endswith(REPLACEMENT):
                piece = text[self._shown :]
                self._go_on(len(self._window) - pending)
                return piece
        piece = self._tokenizer.decode_raw(self._window[:-UNFINISHED])[self._shown :]
        # Decoders of bytes judge all that stand together: what comes is not to be held against those that are shown.
        self._window, self._keep_from, self._shown = self._window[-UNFINISHED:], 0, 0
        return piece

    def _go_on(self, stop: int) -> None:
        """Take the ids added last, up to `stop`, as the context of the next: decoding may depend on what is before."""
        context, pending = self._window[self._keep_from : stop], self._window[stop:]
        self._window, self._keep_from = context + pending, len(context)
        self._shown = len(self._tokenizer.decode_raw(context))
