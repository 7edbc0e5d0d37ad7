"""The bundled models as a newcomer meets them, answered by the running service: the README's requests, every screen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.service.page.conftest import OpenPage

pytestmark = [pytest.mark.integration, pytest.mark.browser]

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
CURLS = re.findall(
    r"^    curl http://127\.0\.0\.1:8000(\S+) -H '\S+ \S+' -d '(.*)'\n    (\{.*\})$", README, re.MULTILINE
)


def near(value: Any) -> Any:
    """Return an answer that others equal whose numbers are near, as those of another processor."""
    if isinstance(value, dict):
        return {name: near(each) for name, each in value.items()}
    if isinstance(value, list):
        return [near(each) for each in value]
    return pytest.approx(value, rel=0.02, abs=2e-3) if isinstance(value, float) else value


def test_the_first_page_has_requests_of_all_kinds() -> None:
    assert len(CURLS) >= 7


@pytest.mark.parametrize(("path", "body", "printed"), CURLS, ids=[path for path, _, _ in CURLS])
def test_what_the_first_page_prints_is_answered(address: str, path: str, body: str, printed: str) -> None:
    response = httpx.post(f"{address}{path}", content=body, headers={"Content-Type": "application/json"}, timeout=60)

    assert response.json() == near(json.loads(printed))


def answered(page: Page) -> None:
    """Wait until the status tells of an answer, and nothing is wrong."""
    expect(page.get_by_role("status")).to_contain_text("tokens")
    expect(page.get_by_role("alert")).to_be_hidden()


def test_there_is_a_screen_for_all_that_the_bundled_models_do(open_page: OpenPage) -> None:
    page = open_page("")

    links = page.get_by_role("navigation").get_by_role("link")
    expect(links).to_have_text(
        ["Classify", "Embed", "Rerank", "Tag", "Answer", "Generate", "Chat", "Translate", "Inside"]
    )


def test_a_film_is_praised_and_its_words_say_why(open_page: OpenPage) -> None:
    page = open_page("classify")
    page.get_by_label("Text").fill("A warm, funny film with a wonderful cast.")
    labels = page.get_by_role("list", name="Labels").get_by_role("listitem")
    expect(labels.first).to_contain_text("positive")
    expect(page.get_by_role("heading", name="What speaks for “positive”")).to_be_visible()
    expect(page.locator(".word.for", has_text="wonderful")).to_be_visible()
    answered(page)
    page.get_by_label("Text").fill("A dull, boring film with a terrible cast.")

    expect(labels.first).to_contain_text("negative")


def test_trousers_are_known_in_a_picture(open_page: OpenPage) -> None:
    page = open_page("classify")
    page.get_by_label("Model").select_option("fashion")

    expect(page.get_by_role("list", name="Labels").get_by_role("listitem").first).to_contain_text("Trouser")
    answered(page)


def test_texts_that_mean_alike_are_near(open_page: OpenPage) -> None:
    page = open_page("embed")
    answered(page)
    first = page.locator(".matrix tbody tr").first.locator("td")
    itself, alike, _, _, other, _ = (float(cell) for cell in first.all_text_contents())

    assert itself == 1
    assert alike > other
    expect(page.locator(".dot")).to_have_count(6)


def test_documents_that_fit_a_query_come_first(open_page: OpenPage) -> None:
    page = open_page("rerank")
    answered(page)

    ranked = page.get_by_role("list", name="Documents, best first").get_by_role("listitem")
    expect(ranked.first).to_contain_text("guitar")


def test_a_story_is_written_while_the_strip_counts_its_tokens(open_page: OpenPage, address: str) -> None:
    page = open_page("generate")
    page.get_by_label("What the server is doing").locator("summary").click()
    page.get_by_label("Most tokens").first.fill("400")
    page.get_by_role("button", name="Generate", exact=True).click()
    row = page.locator(".live li", has_text="stories")
    expect(row).to_contain_text(re.compile(r"\d+ of \d+ slots, [1-9]\d* tokens/s"))
    answered(page)
    page.locator(".token").nth(3).hover()

    assert len((page.locator(".stream").first.text_content() or "").split()) > 20
    expect(page.get_by_role("list", name="Alternatives").get_by_role("listitem").first).to_be_visible()
    expect(page.locator(".live li")).to_have_count(10)
    told = httpx.get(f"{address}/live")
    assert len(told.json()["models"]) == 10 and len(told.content) < 1100


def test_a_story_is_asked_for_in_a_conversation(open_page: OpenPage) -> None:
    page = open_page("chat")
    page.get_by_label("Message").press("Enter")
    answered(page)

    expect(page.locator(".bubble")).to_have_count(2)
    expect(page.locator(".bubble.model")).to_contain_text(re.compile(r"\w+ \w+"))


def test_a_sentence_is_translated_with_its_words_in_pairs(open_page: OpenPage) -> None:
    page = open_page("translate")
    page.get_by_label("Into").select_option("sv")
    page.get_by_label("Text", exact=True).fill("Dan loves music.")
    expect(page.locator(".reading.large")).to_have_text("Dan älskar musik.")
    page.locator(".partners .pair", has_text="loves").hover()

    expect(page.locator(".reading.large .pair.lit")).to_have_text("älskar")
    answered(page)
    page.get_by_role("button", name="Swap").click()
    expect(page.locator(".reading.large")).to_have_text("Dan loves music.")


@pytest.mark.parametrize(
    ("model", "parameters", "layers", "part"),
    [
        ("sentiment", "8,009,474", "6 encoder", "Every head"),
        ("stories", "4,339,200", "4 decoder", "Layer by layer"),
        ("translate", "7,314,944", "4 encoder + 2 decoder", "Layer by layer"),
    ],
)
def test_one_looks_inside(open_page: OpenPage, model: str, parameters: str, layers: str, part: str) -> None:
    page = open_page("inside")
    page.get_by_label("Model").select_option(model)
    facts = page.locator(".facts")
    expect(facts).to_contain_text(f"Parameters{parameters}")
    expect(facts).to_contain_text(f"Layers{layers}")
    expect(page.get_by_role("heading", name=part)).to_be_visible()
    page.get_by_role("button", name="Layer 2, head 3").click()

    expect(page.get_by_role("heading", name="Layer 2, head 3")).to_be_visible()
    answered(page)
