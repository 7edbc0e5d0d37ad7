from __future__ import annotations

import pytest

from service.tasks.stopping import StopTexts, ends_text
from tests.conftest import TinyPackage


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("stops", "text", "shown"),
    [
        (["\n\n"], "a\nb\n\nc", "a\nb"),
        (["END", "NDX"], "the ENDX", "the "),
        (["abc"], "ababab", "ababab"),
        (["abc"], "abababc", "abab"),
        ([], "anything", "anything"),
        ([""], "anything", "anything"),
    ],
)
def test_text_is_shown_up_to_the_stop_however_it_is_cut(size: int, stops: list[str], text: str, shown: str) -> None:
    stop_texts, seen = StopTexts(stops), ""
    for start in range(0, len(text), size):
        is_last = start + size >= len(text)
        seen += stop_texts.add(text[start : start + size], is_last=is_last)
        if stop_texts.is_met:
            break

    assert seen == shown
    assert stop_texts.is_met == (shown != text)


def test_only_what_may_become_a_stop_is_held_back() -> None:
    stop_texts = StopTexts(["STOP"])

    assert stop_texts.add("go ST") == "go "
    assert stop_texts.add("AY") == "STAY"


@pytest.mark.parametrize("stop", ["g", " dog", "the dog was", "é", "😀!", "\n\n"])
def test_a_beam_has_a_stop_text_from_the_token_on_that_completes_it(stories: TinyPackage, stop: str) -> None:
    text = "Once the dog was good: été 😀! And\n\nred."
    ids = stories.tokenizer.encode(text, adds_special=False).ids
    prompt, *ids = ids
    ends = ends_text(stories.tokenizer, [stop, ""], [prompt])
    assert ends is not None and ends_text(stories.tokenizer, [""], [prompt]) is None

    begun = len(stories.tokenizer.decode([prompt]))
    texts = [stories.tokenizer.decode([prompt, *ids[: place + 1]])[begun:] for place in range(len(ids))]
    first = [stop in text for text in texts].index(True)
    *before, shown = [ends(ids[:place], ids[place]) for place in range(first + 1)]
    assert not any(before) and isinstance(shown, tuple)
    assert texts[first].split(stop)[0].endswith(str(shown[-1]))


def test_a_beams_first_tokens_may_be_held_to_no_stop_text(stories: TinyPackage) -> None:
    prompt, *ids = stories.tokenizer.encode("Once a dog and a dog and a dog", adds_special=False).ids
    half = len(ids) // 2
    ends = [ends_text(stories.tokenizer, ["dog"], [prompt], least) for least in (0, half, len(ids))]
    free, held, never = [[place for place in range(len(ids)) if end and end(ids[:place], ids[place])] for end in ends]

    assert held and held == [place for place in free if place >= half] != free
    assert not never
