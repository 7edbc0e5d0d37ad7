"""What users ask: real sentences, in lengths drawn from log-normal distributions, the same for a seed."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

# Black Beauty, by Anna Sewell, 1877: sentences of its first chapters. In the public domain.
SENTENCES = (Path(__file__).parent / "sentences.txt").read_text(encoding="utf-8").splitlines()


class Inputs:
    """Requests of one user, by a random generator of its own."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.due_s: float | None = None  # when the next request of an open loop is to be sent

    def length(self, median: float, sigma: float, most: int) -> int:
        """Draw a length: half are shorter than the median; the larger sigma, the more are much longer."""
        return max(1, min(most, round(self._rng.lognormvariate(math.log(median), sigma))))

    def text(self, words: int) -> str:
        """Return whole sentences, in the book's order, of about so many words."""
        start = self._rng.randrange(len(SENTENCES))
        chosen: list[str] = []
        while sum(len(sentence.split()) for sentence in chosen) < words:
            chosen.append(SENTENCES[(start + len(chosen)) % len(SENTENCES)])
        return " ".join(chosen)

    def classify(self) -> dict[str, Any]:
        """Return a request to classify a text: a remark, or now and then a long review."""
        return {"input": self.text(self.length(median=30, sigma=0.9, most=200))}

    def embed(self) -> dict[str, Any]:
        """Return a request for the vectors of one to sixteen short texts, as an indexer sends them."""
        count = self.length(median=3, sigma=0.8, most=16)
        return {"input": [self.text(self.length(median=12, sigma=0.5, most=50)) for _ in range(count)]}

    def generate(self) -> dict[str, Any]:
        """Return a request to continue the beginning of a text by some to many tokens."""
        words = self.text(40).split()[: self.length(median=10, sigma=0.6, most=40)]
        tokens = self.length(median=50, sigma=0.6, most=200)
        return {"prompt": " ".join(words), "max_tokens": tokens, "seed": self._rng.randrange(2**31)}

    def translate(self) -> dict[str, Any]:
        """Return a request to translate a sentence, or now and then a paragraph."""
        text = self.text(self.length(median=9, sigma=0.7, most=80))
        return {"input": text, "target": self._rng.choice(["de", "fr", "sv"])}

    def pause(self, mean_s: float) -> float:
        """Draw the time to the next request of a Poisson process, in seconds; none where its mean is 0."""
        return self._rng.expovariate(1 / mean_s) if mean_s else 0.0

    def until_next(self, mean_s: float, now_s: float) -> float:
        """Return how long to wait for the next request of a Poisson process that keeps its own times.

        Who comes late to one waits that much less for the next, so that a busy load generator sends as many as it
        should.
        """
        self.due_s = (now_s if self.due_s is None else self.due_s) + self.pause(mean_s)
        return max(0.0, self.due_s - now_s)
