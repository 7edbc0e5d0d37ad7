"""Sample texts as a model takes them: its graphs are compared with torch on them, and its numbers' ranges found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from tokenizers import Tokenizer

from model.card import Tokens
from model.config import TransformerConfig
from model.package import PackageTokenizer

SENTENCES = (
    "The river rose in the night, and by the morning the lower meadows were under water.",
    "Is this seat taken? No, please sit down.",
    "In 1869 the chemist wrote the names of the elements on cards, 63 of them, and laid them out like a game.",
    "I have rarely seen a film so dull; the actors did what they could, but nobody had told them what it was about.",
    "Dan loves ice cream.",
    "Once upon a time there was a little girl who lived with her grandmother at the edge of the wood.",
    "Der Zug nach Hamburg fährt heute von Gleis 7, zehn Minuten später als geplant.",
    "Elle n'a rien dit, mais son sourire en disait long.",
    "Vi ses på torsdag klockan fem utanför biblioteket.",
    "El precio del pan ha subido un 4,5 % desde enero.",
    "def area(radius): return 3.14159 * radius ** 2",
    "Все счастливые семьи похожи друг на друга.",
    "今日はとても寒いですね。",
)
# Others, on which graphs are compared with torch: not those that constant scales were found by.
COMPARED = (
    "Nobody knew who had left the suitcase on the platform, so the stationmaster carried it inside.",
    "Where did you put the keys? They are on the table, I think.",
    "The museum opened in 1924 and has been rebuilt twice, at a cost of 2.5 million each time.",
    "What a wonderful evening; we laughed, we cried, and the food was better than anything I had hoped for!",
    "Mary has a red bicycle.",
    "An old bear lived in a cave behind the waterfall, and every spring the children brought him honey.",
    "Am Sonntag wollen wir mit den Kindern im Wald spazieren gehen, falls es nicht regnet.",
    "Il faudra que tu me racontes tout ça quand tu reviendras de voyage.",
    "Kan du hjälpa mig att hitta närmaste apotek, tack?",
    "La biblioteca cierra a las ocho, pero los sábados abre sólo por la mañana.",
    'for name, size in files.items(): print(f"{name}: {size / 1024:.1f} KB")',
    "Ночью выпал снег, и весь город стал тихим и белым.",
    "駅までバスで十分くらいかかります。",
)
# Different tokens of a tokenizer that knows words: of the sentences above, and of others' texts, which may be short.
FEWEST_TOKENS, FEWEST_OF_OTHERS = 5, 2
SPARE_POSITIONS = 4  # that a row's text leaves free; its start or its end takes one
RANDOM_ROWS, RANDOM_LENGTH = 16, 32  # where it knows none


@dataclass(frozen=True)
class Sample:
    """The tokens of a text or of two, of which each, and what a translation has to begin with."""

    ids: list[int]
    forced: tuple[int, ...] = ()
    segments: list[int] | None = None


@dataclass(frozen=True)
class Samples:
    """Texts, and how a translator's outputs begin and end and how long they may be."""

    rows: list[Sample]
    start: int
    end: int | None
    max_positions: int


def samples_of(
    config: TransformerConfig, tokens: Tokens, texts: Sequence[str], *, fewest: int = FEWEST_OF_OTHERS
) -> Samples:
    """Return texts as a model takes them; each goes into another of a translator's languages, in turn.

    Where the tokenizer makes fewer than `fewest` different tokens there are random ids, and random outputs, too.
    """
    special, longest = tokens.special_ids, config.max_positions - SPARE_POSITIONS
    tokenizer = Tokenizer.from_file(str(tokens.file))
    encoded = token_rows(tokenizer, texts, config.vocab_size)
    said = list(zip(encoded, _ways(tokens), strict=False))
    if not knows_words(tokenizer, texts, fewest=fewest):
        drawn = np.random.default_rng(0).integers(0, config.vocab_size, (RANDOM_ROWS, 2, RANDOM_LENGTH)).tolist()
        said += [(ids, ([], tuple(output))) for ids, output in drawn]
    rows = []
    ends = config.architecture == "encoder_decoder" and (tokens.ends_sources or tokens.languages is not None)
    for ids, (first, forced) in said:
        row = [*first, *ids][:longest]
        if ends and special.end is not None and row[-1] != special.end:
            row.append(special.end)
        elif config.architecture == "decoder" and tokens.starts_prompts and special.start is not None:
            row.insert(0, special.start)
        rows.append(Sample(row, forced))
    return Samples(rows, special.start or 0, special.end, config.max_positions)


def pairs_of(
    config: TransformerConfig, tokens: Tokens, texts: Sequence[str], *, fewest: int = FEWEST_OF_OTHERS
) -> Samples:
    """Return pairs as a model takes them that judges two texts: a line's with a TAB between, or a line's and the next.

    What is too long is cut. Where the tokenizer makes too few different tokens there are random ids, as of texts.
    """
    if not knows_words(plain(Tokenizer.from_file(str(tokens.file))), texts, fewest=fewest):
        return samples_of(config, tokens, texts, fewest=fewest)
    tokenizer = PackageTokenizer.load(tokens.file, tokens.pair_text)
    pairs = [tuple(line.split("\t", 1)) if "\t" in line else (line, after) for line, after in _neighbours(texts)]
    encoded = [tokenizer.encode(first, second).shortened(config.max_positions) for first, second in pairs]
    known = [each for each in encoded if each.ids and max(each.ids) < config.vocab_size]
    rows = [Sample(each.ids, segments=each.segment_ids) for each in known]
    return Samples(rows, tokens.special_ids.start or 0, tokens.special_ids.end, config.max_positions)


def _neighbours(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(texts, [*texts[1:], *texts[:1]], strict=True)


def knows_words(tokenizer: Tokenizer, texts: Sequence[str], *, fewest: int) -> bool:
    """Tell whether a tokenizer makes that many different tokens; one of other words makes unknown ones of all."""
    found = {token for text in texts for token in tokenizer.encode(text, add_special_tokens=False).ids}
    return len(found) >= fewest


def token_rows(tokenizer: Tokenizer, texts: Sequence[str], vocab_size: int) -> list[list[int]]:
    """Return each text's ids, as serving has them; without texts that have none, or ids the model does not know."""
    tokenizer = plain(tokenizer)
    encoded = [tokenizer.encode(text).ids for text in texts]
    return [ids for ids in encoded if ids and max(ids) < vocab_size]


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that neither pads nor cuts, as in serving; files may ask for both."""
    tokenizer.no_padding()  # it would count as text
    tokenizer.no_truncation()
    return tokenizer


def _ways(tokens: Tokens) -> Iterator[tuple[list[int], tuple[int, ...]]]:
    """Yield what sources and outputs begin with, for each direction of a translator in turn, for ever."""
    languages = tokens.languages
    if languages is None:
        return cycle([([], ())])
    pairs = languages.directions or list(zip(languages.sources, reversed(languages.sources), strict=True))
    forced = [languages.first_of_target(target) for _, target in pairs]
    first = [languages.first_of_source(source, target) for source, target in pairs]
    return cycle([(ids, () if token is None else (token,)) for ids, token in zip(first, forced, strict=True)])
