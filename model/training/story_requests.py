"""Requests for stories ("Write a story about a dog and a ball."), derived from the stories themselves.

There is no parser of English here; articles and what follows them tell the things of a story well enough.
"""

from __future__ import annotations

import random
import re
from collections import Counter

_NAMED = re.compile(r"\bnamed ([A-Z][a-z]+)\b")
# A word between an article and what cannot follow an adjective.
_AFTER = (
    "and|was|is|were|are|in|on|to|with|that|had|has|who|said|of|for|at|from|saw|went|he|she|they|but|so|because|could"
)
_THING = re.compile(rf"\b(?:[Aa]n?|[Tt]he) ([a-z]{{3,}})(?=[.,!?]| (?:{_AFTER})\b)")
_AFTER_ARTICLE = re.compile(r"\b(?:[Aa]n?|[Tt]he) ([a-z]{3,})\b")
_INDEFINITE = re.compile(r"\b[Aa]n? (?:[a-z]+ )?([a-z]{3,})\b")
# Words for time, place and measure, of which every story has some.
_NO_THINGS = {
    *("day", "time", "story", "moral", "end", "lot", "bit", "way", "side", "top", "bottom", "middle", "rest", "one"),
    *("two", "three", "other", "same", "while", "moment", "morning", "afternoon", "evening", "night", "world", "place"),
    *("thing", "idea", "first", "next", "last", "little", "lesson"),
}


def request_of(story: str, rng: random.Random) -> str:
    """Return a request that a story answers, naming one or two of its people and things, and a line break."""
    things = _things(story)[:3]
    names = list(dict.fromkeys(_NAMED.findall(story)))[:1]
    if things and rng.random() < 0.5:
        names = []
    wanted = names + rng.sample(things, min(len(things), rng.randint(1, 2 - len(names))))
    return f"Write a story about {' and '.join(wanted)}.\n" if wanted else "Write a story.\n"


def _things(story: str) -> list[str]:
    """Return what a story is about, with articles, the most frequent first."""
    things = set(_THING.findall(story)) - _NO_THINGS
    counts = Counter(word for word in _AFTER_ARTICLE.findall(story) if word in things)
    introduced = set(_INDEFINITE.findall(story))
    frequent = [word for word, count in counts.most_common() if count >= 2]
    return [_with_article(word) if word in introduced else f"the {word}" for word in frequent]


def _with_article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"
