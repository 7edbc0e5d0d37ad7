from __future__ import annotations

import random

from model.training.story_requests import request_of

STORY = (
    "Once upon a time there was a little girl named Lily. She had a red ball. One day she saw an owl in the forest. "
    "The owl took the ball. Lily asked the owl for the ball. The owl said no. The end."
)


def test_a_request_names_what_its_story_is_about() -> None:
    requests = {request_of(STORY, random.Random(seed)) for seed in range(40)}

    assert all(request.startswith("Write a story about ") and request.endswith(".\n") for request in requests)
    named = {part for request in requests for part in request[len("Write a story about ") : -2].split(" and ")}
    assert named == {"Lily", "an owl", "a ball"}


def test_a_story_about_nothing_in_particular_has_a_plain_request() -> None:
    assert request_of("They ran and ran.", random.Random(0)) == "Write a story.\n"
