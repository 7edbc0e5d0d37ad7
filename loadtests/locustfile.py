"""Users of the tasks, each at the model's own address: `make load`, or `locust -f loadtests/locustfile.py`."""

from __future__ import annotations

import random

from locust import FastHttpUser, between, task

REVIEWS = [
    "A warm, funny and moving film that I will gladly see again.",
    "The plot makes no sense and the jokes fall flat.",
    "Great actors, and a story that keeps you guessing until the very last minute of its three hours.",
]
PROMPTS = ["Once upon a time", "One day, a little girl named Lily", "The big dog was sad because"]
SENTENCES = ["Dan loves ice cream.", "Where is the next train station?", "I have never seen such a beautiful house."]


class ClassifyUser(FastHttpUser):
    """Asks for the sentiment of reviews."""

    wait_time = between(0.0, 0.2)

    @task
    def classify(self) -> None:
        """Classify one review."""
        self.client.post("/models/sentiment/classify", json={"input": random.choice(REVIEWS)})


class GenerateUser(FastHttpUser):
    """Asks for stories."""

    wait_time = between(0.5, 1.5)

    @task
    def generate(self) -> None:
        """Continue a prompt by as many tokens as chance has it."""
        body = {"prompt": random.choice(PROMPTS), "max_tokens": random.randint(20, 100)}
        self.client.post("/models/stories/generate", json=body)


class TranslateUser(FastHttpUser):
    """Asks for translations."""

    wait_time = between(0.2, 0.8)

    @task
    def translate(self) -> None:
        """Translate one sentence into a language at random."""
        body = {"q": random.choice(SENTENCES), "target": random.choice(["de", "fr", "sv"])}
        self.client.post("/models/translate/translate", json=body)
