"""Which language a text is in, by py3langid: a linear model over n-grams of bytes, without any network.

Lui and Baldwin, "langid.py: An Off-the-shelf Language Identification Tool", 2012. Beside it: the names of languages.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from threading import Lock

from langcodes import Language
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from model.package.languages import NORWEGIAN, PARSING, base_language, likely_script

READ = 1_000  # characters of a text that are read: enough to be sure, and at most a millisecond
NAME_WORDS, PARTICLE = 4, 3  # words of a name at most, and letters of one of them that has no capital
ENOUGH = 25  # letters from which on languages that are likely together are believed: "mozzarella" is in any of many
SURE = 0.9  # a score by which a text is taken to be in a language, whatever was asked
CODES_OF_CHINESE = {"Hans": "gb2312", "Hant": "big5"}
# How decompositions of letters begin that are forms of others: of one width or another, say.
_FORMS = ("<wide>", "<narrow>", "<font>", "<initial>", "<medial>", "<final>", "<isolated>")
# What letters' names begin with in Unicode, by the script that a language is written in; of others it is not known.
SCRIPTS = {
    "Arab": ("ARABIC",),
    "Armn": ("ARMENIAN",),
    "Beng": ("BENGALI",),
    "Cyrl": ("CYRILLIC",),
    "Deva": ("DEVANAGARI",),
    "Ethi": ("ETHIOPIC",),
    "Geor": ("GEORGIAN",),
    "Grek": ("GREEK",),
    "Gujr": ("GUJARATI",),
    "Guru": ("GURMUKHI",),
    "Hans": ("CJK",),
    "Hant": ("CJK",),
    "Hebr": ("HEBREW",),
    "Jpan": ("CJK", "HIRAGANA", "KATAKANA"),
    "Khmr": ("KHMER",),
    "Knda": ("KANNADA",),
    "Kore": ("HANGUL", "CJK"),
    "Laoo": ("LAO",),
    "Latn": ("LATIN",),
    "Mlym": ("MALAYALAM",),
    "Mymr": ("MYANMAR",),
    "Orya": ("ORIYA",),
    "Sinh": ("SINHALA",),
    "Taml": ("TAMIL",),
    "Telu": ("TELUGU",),
    "Tfng": ("TIFINAGH",),
    "Thai": ("THAI",),
    "Tibt": ("TIBETAN",),
}
NOWHERE = "XX"  # the region of mBART's languages that have none, as en_XX

_reading = Lock()


@dataclass(frozen=True)
class Guess:
    """A language that a text may be in, and how likely it is, of all that were asked about: 0 to 1."""

    language: str
    score: float


class Detector:
    """Tells languages apart that are known under some names; those that py3langid does not know are never found.

    The model is read with the first text: it takes 70 MB, which few services need whose clients name languages.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names: dict[str, dict[str, str]] = {}  # a language's code → script → ours, the first that is written so
        for name in names:
            self._names.setdefault(base_language(name), {}).setdefault(likely_script(name), name)
        written = {script for by_script in self._names.values() for script in by_script}
        self._knows_scripts = written <= SCRIPTS.keys()
        self._scripts = {name for script in written for name in SCRIPTS.get(script, ())}
        for code in NORWEGIAN:  # of which some models know one, by whichever name
            other = next((self._names[each] for each in NORWEGIAN if each in self._names), None)
            if other is not None:
                self._names.setdefault(code, other)

    def guesses(self, text: str) -> list[Guess]:
        """Return all languages, the likeliest first; those of a text without letters have no score, nor any order.

        Takes 0.1 to 1 ms, and 2 s when a process asks for the first time.
        """
        return self.read(text)[0]

    def read(self, text: str) -> tuple[list[Guess], str | None]:
        """Return the guesses, and which language the text is surely in, of all that py3langid knows; None if unsure.

        It is surely in none of ours if those that are likelier than any of ours have `SURE` together: it tells Danish
        from Swedish, but hardly from Norwegian. That does not count of a few letters or of what may be a name, which
        look like many languages. Ours have the scores then that they have among all, else among ours.
        """
        text = _in_common_letters(text[:READ])
        scripts = _scripts_of(text)
        ranked = [(base_language(code), score) for code, score in _identifier().rank(text)]
        ours: dict[str, float] = {}
        others = 0.0  # the scores of those that are likelier than any of ours
        for code, score in ranked:
            if (names := self._names.get(code)) is not None:
                name = _in_script_of(text, scripts, names)
                ours[name] = ours.get(name, 0.0) + score
            elif not ours:
                others += score
        if not any(map(_tells, text)):
            return [Guess(name, 0.0) for name in ours], None
        first, score = ranked[0]
        is_other = first not in self._names and (
            score >= SURE or (others >= SURE and self._tells_enough(text, scripts))
        )
        total = 1.0 if others >= SURE else sum(ours.values()) or 1.0
        guesses = [Guess(name, score / total) for name, score in sorted(ours.items(), key=lambda each: -each[1])]
        if is_other:
            return guesses, first
        return guesses, guesses[0].language if score >= SURE else None

    def _tells_enough(self, text: str, scripts: Mapping[str, int]) -> bool:
        """Tell whether languages that are only likely together are believed of a text.

        That is if nothing of it is in a script of ours, or it has enough letters and is no name, which has few words,
        with capitals but for particles.
        """
        if self._knows_scripts and not scripts.keys() & self._scripts:
            return True
        words = text.split()
        may_be_name = (
            len(words) <= NAME_WORDS
            and all(word[:1].isupper() or len(word) <= PARTICLE for word in words)
            and scripts.keys() <= self._scripts
        )
        return sum(scripts.values()) >= ENOUGH and not may_be_name


async def prepare() -> None:
    """Let the model be read by a thread if it has not been; whoever then guesses on the event loop stalls nobody."""
    if not _read_identifier.cache_info().currsize:
        await asyncio.to_thread(_identifier)


def _in_common_letters(text: str) -> str:
    """Return a text with letters of full or half width, or in mathematical bold, as texts commonly have them.

    Marks stay as they are, for Chinese is told by its own, and so do letters that are compatible with rarer ones, such
    as those of Korean which stand alone.
    """
    if unicodedata.is_normalized("NFKC", text):
        return text
    letters = (unicodedata.normalize("NFKC", each) if _is_a_form(each) else each for each in text)
    return unicodedata.normalize("NFC", "".join(letters))[:READ]


def _is_a_form(letter: str) -> bool:
    return letter.isalpha() and unicodedata.decomposition(letter).startswith(_FORMS)


def _tells(character: str) -> bool:
    """Tell whether a character is of some languages: a letter, or a digit that others write differently."""
    return character.isalpha() or (character.isdigit() and not character.isascii())


def _scripts_of(text: str) -> Mapping[str, int]:
    """Count a text's letters by script, as Unicode's names of them begin."""
    scripts: Counter[str] = Counter()
    for character, times in Counter(text).items():
        if character.isalpha():
            scripts[unicodedata.name(character, "").partition(" ")[0]] += times
    return scripts


def _in_script_of(text: str, scripts: Mapping[str, int], names: Mapping[str, str]) -> str:
    """Return of one language's names by script the one whose script a text is in; the first if none is."""
    if len(names) == 1:
        return next(iter(names.values()))
    if names.keys() >= {"Hans", "Hant"}:
        # Few characters of the one are in a code made for the other.
        lost = {script: len(text.encode(code, "ignore")) for script, code in CODES_OF_CHINESE.items()}
        return names["Hant" if lost["Hant"] > lost["Hans"] else "Hans"]
    return max(names.items(), key=lambda each: sum(scripts.get(name, 0) for name in SCRIPTS.get(each[0], ())))[1]


def english_name(language: str) -> str:
    """Return a language's name in English, as German for deu_Latn; the code itself if no language is known by it."""
    try:
        with PARSING:
            tag = Language.get(language)
    except ValueError:
        return language
    if not tag.has_name_data():
        return language
    return tag.language_name() if tag.territory == NOWHERE else tag.display_name()


def _identifier() -> LanguageIdentifier:
    with _reading:  # else each thread that waits for it would read one of its own
        return _read_identifier()


@cache
def _read_identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
