"""What a translator reads: texts in languages that it knows, cut into sentences that are short enough, as ids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import accumulate

from model.package import Manifest, PackageTokenizer
from model.package.languages import base_language
from model.package.tokenizer import Encoding
from service.engine.admission import Permit
from service.errors import InvalidRequest, TooLarge
from service.languages import READ, SURE, Detector, Guess, english_name, prepare
from service.schemas import TranslateRequest
from service.schemas.translate import AUTO
from service.tasks.markup import parts_of, text_of
from service.tasks.pool import Pool
from service.tasks.sentences import (
    WITHOUT_SPACES,
    TooManySentences,
    cut,
    has_words,
    is_within_word,
    split,
    visible,
    without_words_kept,
)
from service.tasks.texts import MAX_CHARACTERS_PER_TOKEN, as_list, check_length, encode_all, which

SPECIAL_TOKENS = 4  # around a sentence, at most
SPARE_AT_CUTS = 8  # where a sentence is cut that is too long
IN_SENTENCE = " in a sentence"
NAMED = 8  # languages that a message names, of the many that some models know


@dataclass(frozen=True)
class SourceText:
    """A text as it was read: its language, what that was guessed by, and its parts as `split` has them."""

    source: str
    guess: Guess | None
    parts: list[str]
    starts: list[int]  # of the parts in the text as it was sent

    @property
    def sentences(self) -> list[str]:
        """What is translated of it, in order."""
        return [part for part in self.parts[::2] if part]


class Sources:
    """Reads the texts of requests to a translator, within its limits."""

    def __init__(self, manifest: Manifest, tokenizer: PackageTokenizer, pool: Pool, max_sentences: int) -> None:
        self._manifest, self._tokenizer, self._pool = manifest, tokenizer, pool
        self._max_sentences = max_sentences
        assert manifest.languages is not None, "bug: the manifest says that a translator has languages"
        self._languages = manifest.languages
        self._detector = Detector(manifest.languages.names)
        # Tokenizers that know many languages put one of them before every text, whichever they were saved with.
        self._adds_special = self._languages.source_begins_with != "source"

    async def in_known_languages(self, request: TranslateRequest) -> TranslateRequest:
        """Return a request with the model's own names of its languages; raises `InvalidRequest` for those it lacks."""
        languages = self._languages
        target = _one_of(languages.known_as(request.target), request.target, languages.targets, "target")
        source = AUTO
        if request.source != AUTO:
            known = [*([] if languages.needs_source else [AUTO]), *languages.sources]
            source = _one_of(languages.known_as(request.source), request.source, known, "source")
            if not languages.translates(source, target):
                asked = f"source is {request.source!r} and target is {request.target!r}"
                raise InvalidRequest(f"{asked}; this model translates {self._directions()}", "target")
        elif languages.needs_source:
            await prepare()
            if self._guess("", target) is None:
                sources = _named(languages.sources)
                raise InvalidRequest(f"source is 'auto'; this model has to be told one of {sources}", "source")
        return request.model_copy(update={"source": source, "target": target})

    def _directions(self) -> str:
        if not self._languages.directions:
            return "from each of its languages to any other"
        return _named([f"{source} to {target}" for source, target in self._languages.directions])

    async def read(self, request: TranslateRequest, permit: Permit) -> list[SourceText]:
        """Return each text with its language, cut into sentences."""
        if request.source == AUTO:
            await prepare()
        texts: list[SourceText] = []
        left = self._max_sentences
        given = as_list(request.input)
        for place, text in enumerate(given):
            of = which(place, len(given))
            try:
                texts.append(await self._pool.run(permit, len(text), self._read_one, request, text, max(left, 1), of))
            except TooManySentences:
                left = -1
            else:
                left -= len(texts[-1].sentences)
            if left < 0:
                raise TooLarge(f"input has more than {self._max_sentences} sentences; send several requests", "input")
        return texts

    def _read_one(self, request: TranslateRequest, text: str, most: int, of: str) -> SourceText:
        is_page = request.format == "html"
        guess = None
        if request.source == AUTO:
            guess = self._guess(text_of(text, READ) if is_page else text, request.target, of)
        source = guess.language if guess else request.source
        if source == request.target:
            return SourceText(source, guess, ["", text], [0, 0])
        parts = (parts_of if is_page else split)(text, base_language(source), most)
        parts, starts = self._with_long_ones_cut(request, source, parts, most)
        return SourceText(source, guess, *without_words_kept(parts, starts, as_written(request)))

    def _with_long_ones_cut(
        self, request: TranslateRequest, source: str, parts: list[str], most: int
    ) -> tuple[list[str], list[int]]:
        """Return parts in which no sentence has more tokens than the model reads, and where they start.

        Between parts that had no space between them there is one if the target's script has spaces. Raises
        `TooManySentences` as soon as a sentence has become more than `most`.
        """
        language = base_language(source)
        has_spaces = base_language(request.target) not in WITHOUT_SPACES
        pieces: list[str] = []
        starts: list[int] = []
        start = 0
        for place, part in enumerate(parts):
            if place % 2:
                some, written = [part], [part or " "] if has_spaces else [part]
            else:
                some = self._cut_if_long(request, source, part, most) if has_words(part) else [part]
                written = list(some)
                for gap in range(1, len(some), 2) if has_spaces else ():
                    written[gap] = some[gap] or ("" if is_within_word(some[gap - 1], language) else " ")
            starts += accumulate(map(len, some[:-1]), initial=start)
            start += sum(map(len, some))
            pieces += written
        return pieces, starts

    def _cut_if_long(self, request: TranslateRequest, source: str, sentence: str, at_most: int) -> list[str]:
        limit, prefix = self._manifest.limits.max_input_tokens, self._languages.prefix_of(source, request.target)
        if len((prefix + sentence).encode()) + SPECIAL_TOKENS <= limit:  # tokens have a byte, but for rare ligatures
            return [sentence]
        most = limit * MAX_CHARACTERS_PER_TOKEN
        if len(sentence) > most:  # encoded in parts
            pieces: list[str] = []
            for place, part in enumerate(cut(sentence, lambda begin, end: end - begin <= most)):
                pieces += [part] if place % 2 else self._cut_if_long(request, source, part, at_most)
                if len(pieces) > 2 * at_most:
                    raise TooManySentences
            return pieces
        encoding = self._tokenizer.encode(prefix + sentence, adds_special=self._adds_special, plain=True)
        tokens = len(self._source_of(encoding.ids, source, request.target))
        if tokens <= limit:
            return [sentence]
        # Encoded but once. What is cut within a token has more of them, for which some are spared; rarely too few.
        ends = sorted(end - len(prefix) for _, end in encoding.offsets if end > len(prefix))
        room = max(1, limit - (tokens - len(ends)) - SPARE_AT_CUTS)
        return cut(sentence, lambda begin, end: bisect_right(ends, end) - bisect_right(ends, begin) <= room)

    def _source_of(self, ids: list[int], source: str, target: str) -> list[int]:
        """Return what the encoder reads of a sentence."""
        return self._manifest.source_of(ids, self._languages.first_of_source(source, target))

    def _guess(self, text: str, target: str, of: str = "") -> Guess | None:
        """Return the likeliest language that is translated into the target, or the target if it is that for sure.

        Raises `InvalidRequest` for a text that is for sure in another: it would be taken for one in these, Danish for
        Swedish.
        """
        guesses, surely = self._detector.read(text)
        possible = self._languages.sources_for(target)
        if surely is not None and base_language(surely) not in map(base_language, [*possible, target]):
            raise InvalidRequest(
                f"input{of} is in {english_name(surely)}, and this model translates {_named(possible)} "
                f"into {target}; if it is in one of these, name it as the source",
                "source",
            )
        if guesses and guesses[0].language == target and guesses[0].score >= SURE:
            return guesses[0]
        if len(possible) == 1:
            return next((guess for guess in guesses if guess.language in possible), Guess(possible[0], 0.0))
        return next((guess for guess in guesses if guess.language in possible), None)

    async def ids(self, request: TranslateRequest, permit: Permit, texts: list[SourceText]) -> list[list[int]]:
        """Return the ids of every sentence."""
        limit = self._manifest.limits.max_input_tokens
        sentences = [
            (text.source, sentence, _where(place, len(texts)))
            for place, text in enumerate(texts)
            for sentence in text.sentences
        ]
        texts_behind = [
            (self._languages.prefix_of(source, request.target) + visible(sentence),)
            for source, sentence, _ in sentences
        ]

        def keep(place: int, encoding: Encoding) -> list[int]:
            source, _, where = sentences[place]
            ids = self._source_of(encoding.ids, source, request.target)
            check_length(len(ids), limit, "input", where)  # a normalizer may have made it longer
            return ids

        special = self._adds_special
        return await encode_all(
            self._pool, permit, self._tokenizer, texts_behind, keep, adds_special=special, plain=True
        )


def as_written(request: TranslateRequest) -> Callable[[str], str]:
    """Return what writes text as the request's format has it."""
    return partial(escape, quote=False) if request.format == "html" else str


def _where(place: int, among: int) -> str:
    return IN_SENTENCE + which(place, among)


def _one_of(found: str | None, asked: str, known: list[str], param: str) -> str:
    if found not in known:
        raise InvalidRequest(f"{param} is {asked!r}; this model has {_named(known)}", param)
    return found


def _named(names: list[str]) -> str:
    """Return names as a sentence has them, of many only the first."""
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more; GET /languages lists them"
