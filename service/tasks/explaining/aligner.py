"""The words of a translation that correspond to those of its source, by what its own model makes of both.

A model that translates both ways reads both texts with one encoder: there words that mean alike are near one another,
in their contexts. Any other is asked for its decoder's attention to the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.package import Manifest, PackageTokenizer
from model.package.languages import base_language
from service.engine.admission import Permit
from service.engine.arrays import Array
from service.engine.explaining.explainer import Explainer
from service.engine.explaining.graph import NOWHERE, Look
from service.schemas.translate import WordPair
from service.tasks.explaining.alignment import by_attention, by_vectors, word_pairs
from service.tasks.explaining.insights import Insights
from service.tasks.explaining.tokens import Span, tokens_of_output, words_of, words_of_tokens
from service.tasks.sentences import WITHOUT_SPACES, visible


@dataclass(frozen=True)
class Translated:
    """A sentence as it was read and as it was written."""

    source: str  # the language
    target: str
    text: str
    source_ids: list[int]
    ids: list[int]  # without start and end
    ends: bool = True  # else it was cut


@dataclass(frozen=True)
class Part:
    """A part of a text that begins at a character: a sentence with its translation, or what stands between two."""

    text: str
    start: int
    source_ids: list[int]
    ids: list[int] | None  # none of what is not translated


@dataclass(frozen=True)
class Side:
    """A text's tokens: their places in what the encoder reads, and their characters."""

    ids: list[int]
    places: list[int]
    spans: list[Span]


class Aligner:
    """Aligns sentences of one model."""

    def __init__(self, manifest: Manifest, tokenizer: PackageTokenizer, explainer: Explainer) -> None:
        assert manifest.languages is not None, "bug: a translator has languages"
        self._manifest, self._tokenizer, self._explainer = manifest, tokenizer, explainer
        self._languages = manifest.languages

    def align(self, sentence: Translated) -> list[WordPair]:
        """Return the words that correspond, as characters of the sentence and of its translation."""
        written, tokens = tokens_of_output(self._tokenizer, sentence.ids)
        source = self.read(sentence.text, sentence.source, sentence.target)
        if not source.places or not written.strip():
            return []
        if self._languages.translates(sentence.target, sentence.source):
            target = self.read(written, sentence.target, sentence.source)
            if len(target.ids) > self._manifest.limits.max_input_tokens or not target.places:
                return []
            links = by_vectors(self.vectors(source), self.vectors(target))
            spans = target.spans
        else:
            links = by_attention(self.attention(sentence.source_ids, sentence.ids)[:, source.places])
            spans = [(token.start, token.end) for token in tokens]
        return word_pairs(
            links,
            _in_words(source.spans, sentence.text, sentence.source),
            _in_words(spans, written, sentence.target),
        )

    async def align_texts(
        self, insights: Insights, permit: Permit, texts: Sequence[tuple[str, str, Sequence[Part]]]
    ) -> list[list[WordPair]]:
        """Return the words that correspond, of texts in parts: each with its source and target language.

        Each sentence leaves the permit as its turn comes.
        """
        aligned = []
        for source, target, parts in texts:
            pairs: list[WordPair] = []
            written = 0  # characters of the translation so far
            for part in parts:
                if part.ids is None:
                    written += len(part.text)
                    continue
                permit.begin(1, len(part.source_ids) + len(part.ids))
                sentence = Translated(source, target, part.text, part.source_ids, part.ids)
                of_sentence = await insights.run(permit, self.align, sentence)
                pairs += [pair.moved(part.start, written) for pair in of_sentence]
                written += len(self._tokenizer.decode(part.ids))
            aligned.append(pairs)
        return aligned

    def read(self, text: str, source: str, target: str) -> Side:
        """Return a text as the encoder reads it to translate it."""
        languages = self._languages
        prefix = languages.prefix_of(source, target)
        adds_special = languages.source_begins_with != "source"
        encoding = self._tokenizer.encode(prefix + visible(text), adds_special=adds_special, plain=True)
        first = languages.first_of_source(source, target)
        seen = [*(place for place, character in enumerate(text) if visible(character)), len(text)]
        shown = [
            # The prefix may end in the space of the first.
            (len(first) + place, (seen[max(start - len(prefix), 0)], seen[end - len(prefix) - 1] + 1))
            for place, ((start, end), special) in enumerate(zip(encoding.offsets, encoding.special, strict=True))
            if not special and end > len(prefix)
        ]
        ids = self._manifest.source_of(encoding.ids, first)
        return Side(ids, [place for place, _ in shown], [span for _, span in shown])

    def vectors(self, side: Side) -> Array:
        """Return what the encoder makes of each token, (S, d_model)."""
        insight, _ = self._explainer.encode(side.ids, NOWHERE)
        return np.asarray(insight.states["encoder"][-1][side.places])

    def attention(self, source_ids: Sequence[int], ids: Sequence[int]) -> Array:
        """Return how much each token of a translation looks at the source while it is written, (T, S), of all heads."""
        special = self._manifest.special_ids
        assert special.start is not None and special.end is not None, "bug: a translator has a start and an end"
        cross = self._explainer.translate(source_ids, [special.start, *ids, special.end], Look()).attention["cross"]
        return np.asarray(cross.mean(axis=(0, 1))[: len(ids)])


def _in_words(spans: Sequence[Span], text: str, language: str) -> tuple[list[int | None], list[Span]]:
    words = words_of(text, with_spaces=base_language(language) not in WITHOUT_SPACES)
    return words_of_tokens(spans, text, words), words
