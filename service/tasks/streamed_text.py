"""A text's translation as its sentences grow."""

from __future__ import annotations

from model.package import Detokenizer, PackageTokenizer
from service.engine.mailbox import Output


class StreamedText:
    """A text's translation as it grows: sentences come at once and in any order, and are shown one after the other."""

    def __init__(self, tokenizer: PackageTokenizer, parts: list[str]) -> None:
        self._parts = parts
        self._detokenizers = [Detokenizer(tokenizer) for part in parts[::2] if part]
        self._texts = [""] * len(self._detokenizers)  # of each sentence, what is not shown yet
        self._ended = [False] * len(self._detokenizers)
        self._cut = [False] * len(self._detokenizers)
        self.shows_cut = False  # whether what was shown last has the end of a sentence that was cut
        self._part = self._sentence = 0  # the first that is not wholly shown

    def add(self, place: int, output: Output, *, is_cut: bool = False) -> str:
        """Take a sentence's output, which may be cut behind it; return the text that can be shown now."""
        is_last = output.finish_reason is not None
        self._texts[place] += self._detokenizers[place].add([token.id for token in output.tokens], is_last=is_last)
        self._ended[place], self._cut[place] = is_last, is_cut
        return self.unlocked()

    def unlocked(self) -> str:
        """Return what can be shown: all up to the first sentence that has not ended, and what there is of it."""
        shown, self.shows_cut = "", False
        while self._part < len(self._parts):
            if self._part % 2 or not self._parts[self._part]:
                shown += self._parts[self._part]
            else:
                shown, self._texts[self._sentence] = shown + self._texts[self._sentence], ""
                if not self._ended[self._sentence]:
                    break
                self.shows_cut = self.shows_cut or self._cut[self._sentence]
                self._sentence += 1
            self._part += 1
        return shown
