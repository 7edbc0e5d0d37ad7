"""What the screens draw of an answer: all that it says, in numbers and signs that can be read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.conftest import MakePackage, with_manifest
from tests.service.page.conftest import OpenPage, serving
from tests.service.page.test_screens import use

pytestmark = pytest.mark.browser

USAGE = {"usage": {"prompt_tokens": 5, "completion_tokens": 0}}


def answer_with(page: Page, path: str, **answer: Any) -> None:
    """Answer what a page asks with this, and no more by a model."""
    page.route(f"**/{path}", lambda route: route.fulfill(json={"model": "any", **answer, **USAGE}))


def test_of_many_labels_the_best_and_the_chosen_one_are_drawn_and_the_others_counted(open_page: OpenPage) -> None:
    page = open_page("classify")
    use(page, "classify")
    labels = [{"label": f"label {place}", "score": 1 / 2**place} for place in range(1000)]
    answer_with(page, "classify", results=[{"labels": labels}])
    page.get_by_label("Text").fill("Of which kind is it?")
    rows = page.get_by_role("list", name="Labels").get_by_role("listitem")
    expect(rows).to_have_count(20)
    expect(page.get_by_text("and 980 more")).to_be_visible()
    rows.last.get_by_role("button").click()
    expect(rows.last.get_by_role("button")).to_have_attribute("aria-pressed", "true")
    answer_with(page, "classify", results=[{"labels": [*labels[:19], *labels[20:], labels[19]]}])
    page.get_by_label("Text").fill("Of which kind is that?")

    expect(page.get_by_text("and 979 more")).to_be_visible()
    expect(rows.last).to_contain_text("label 19")


def test_what_the_bytes_of_a_character_add_is_added_up(open_page: OpenPage) -> None:
    page = open_page("classify")
    use(page, "classify")
    places = [(0, 4), (4, 6), (5, 6), (5, 6), (6, 7)]  # as tokenizers of bytes tell of an emoji behind a space
    about = {"id": 1, "token": "", "special": False, "part": 0}
    tokens = [{**about, "start": start, "end": end} for start, end in places]
    found = {"label": "good", "score": 0.9, "log_odds": 1.0, "without": 0.0, "values": [0.1, 0.0, -2.5, 0.3, 0.2]}
    answer_with(page, "explain", tokens=tokens, contributions=found)
    page.get_by_label("Text").fill("Good 🙂!")
    words = page.locator(".reading .word")
    expect(words).to_have_text(["Good", "🙂", "!"])

    assert words.evaluate_all("all => all.map(each => each.title)") == ["+0.10", "-2.20", "+0.20"]
    expect(words.nth(1)).to_have_class("word against")
    page.get_by_text("As numbers").click()
    expect(page.locator(".more td:last-child")).to_have_text(["0.100", "-2.200", "0.200"])


def test_what_adds_to_a_score_that_is_no_share_is_not_called_log_odds(
    open_page: OpenPage, make_package: MakePackage, tmp_path: Path
) -> None:
    raw = with_manifest(make_package("sentiment"), tmp_path / "raw", activation="none")
    with serving([raw]) as address:
        page = open_page("classify", at=address)
        page.get_by_text("As numbers").click()
        expect(page.locator(".legend")).to_contain_text("Shapley values of the score")
        expect(page.get_by_role("columnheader", name="Adds to the score")).to_be_visible()
        page.close()


def test_a_label_stands_apart_from_its_entity_and_its_score_in_a_table(open_page: OpenPage) -> None:
    page = open_page("tag")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    use(page, "tag")
    answer_with(page, "tag", results=[[{"start": 0, "end": 3, "label": "PER", "score": 0.871, "text": "Ann"}]])
    page.get_by_label("Text").fill("Ann went home.")
    expect(page.locator("mark")).to_have_text(["Ann (PER)"])
    page.locator(".reading").evaluate("each => getSelection().selectAllChildren(each)")
    page.keyboard.press("Control+C")

    assert page.evaluate("navigator.clipboard.readText()") == "Ann (PER) went home."
    page.get_by_text("As a table").click()
    expect(page.locator(".more tbody td")).to_have_text(["Ann", "PER", "87 %"])


@pytest.mark.parametrize(
    ("labels", "kinds"),
    [
        (["O", "X", "[PAD]", "B-PER", "E-PER", "S-LOC"], "people (PER), places (LOC)"),
        (["O", "B-PER", "E-mail", "date"], "people (PER), E-mail, date"),
    ],
)
def test_a_screen_tells_what_its_tagger_marks(open_page: OpenPage, labels: list[str], kinds: str) -> None:
    page = open_page("tag")
    models = page.evaluate("fetch('v1/models').then((response) => response.json())")
    for model in models["data"]:
        model["labels"] = labels
    page.route("**/v1/models", lambda route: route.fulfill(json=models))
    page.reload()

    expect(page.locator(".legend")).to_contain_text(f"This model marks {kinds}.")


def test_small_scores_of_documents_are_told_apart(open_page: OpenPage) -> None:
    page = open_page("rerank")
    use(page, "rerank")
    scores = (1234.5, 12.345, 12.346, 0.987654, 0.00004, 0, -8.1)
    results = [{"index": place % 2, "relevance_score": score} for place, score in enumerate(scores)]
    answer_with(page, "rerank", results=results)
    page.get_by_label("Query").fill("Who sings?")

    numbers = page.get_by_role("list", name="Documents, best first").locator(".number")
    expect(numbers).to_have_text(["1234.500", "12.345", "12.346", "0.988", "4.00e-5", "0.00", "-8.100"])


def test_a_cosine_that_is_nearly_nothing_has_no_sign(open_page: OpenPage) -> None:
    page = open_page("embed")
    use(page, "embed")
    answer_with(page, "embed", embeddings=[[1, 0], [-0.001, 1]])
    page.get_by_label("Texts, one a line").fill("A dog.\nA cat.")

    expect(page.locator(".matrix tbody td")).to_have_text(["1.00", "0.00", "0.00", "1.00"])


def test_characters_without_a_sign_are_named(open_page: OpenPage) -> None:
    page = open_page("generate")
    names = page.evaluate(
        """async (texts) => {
            const { href } = document.querySelector('link[href$="dom.js"]'); // beside which the other modules are
            const { shown } = await import(href.replace("dom.js", "tokens.js"));
            return texts.map(shown);
        }""",
        ["\u200b", " \u200d\ufe0f", "\u200d\u200b", " ", "", "\n", "a\u200b", "\u0001", "\ufeff"],
    )

    assert names == ["U+200B", "U+200D U+FE0F", "U+200D U+200B", "␣", "∅", "⏎", "a\u200b", "U+0001", "U+FEFF"]


def test_an_answer_without_a_token_is_not_told_in_tokens(open_page: OpenPage) -> None:
    page = open_page("generate")
    events = [{"index": 0, "text": "", "finish_reason": "stop"}, USAGE]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    page.route("**/generate", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.get_by_role("button", name="Generate", exact=True).click()

    expect(page.get_by_role("region", name="Setting A")).to_contain_text("The model ended at once.")


def test_the_call_that_was_chosen_stays_chosen_and_two_settings_have_their_names(open_page: OpenPage) -> None:
    page = open_page("classify")
    use(page, "classify")
    page.locator("details.call").evaluate("each => each.open = true")
    calls = page.get_by_role("group", name="Request").get_by_role("button")
    expect(calls).to_have_text(["/classify", "/explain"])
    calls.nth(1).click()
    page.get_by_label("Text").fill("The film was good.")
    expect(page.locator("pre")).to_contain_text("The film was good.")
    expect(calls.nth(1)).to_have_attribute("aria-pressed", "true")

    page.get_by_role("link", name="Generate").click()
    page.get_by_label("Compare two settings").check()
    page.get_by_role("button", name="Generate", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("by setting B in")
    page.locator("details.call").evaluate("each => each.open = true")
    expect(calls).to_have_text(["/generate A", "/generate B"])


@pytest.mark.parametrize(
    ("screen", "heard"),
    [
        ("classify", r"^(positive|negative), \d"),
        ("embed", r"^Texts \d and \d are nearest, with"),
        ("rerank", "^Best: "),
    ],
)
def test_who_listens_hears_the_answer_before_how_long_it_took(open_page: OpenPage, screen: str, heard: str) -> None:
    page = open_page(screen)
    use(page, screen)

    expect(page.get_by_role("status")).to_have_text(re.compile(heard + r".*\. Answered in .* \(\d+ tokens\)"))


def test_what_was_written_is_heard_as_a_whole(open_page: OpenPage) -> None:
    page = open_page("generate")
    heard = page.locator("p.heard")
    heard.evaluate(
        "each => { new MutationObserver(() => (window.said ||= each.textContent)).observe(each, SEEN); }".replace(
            "SEEN", "{ childList: true }"
        )
    )
    use(page, "generate")

    expect(heard).to_be_empty()
    assert page.evaluate("said") == page.locator(".stream").first.evaluate("each => each.textContent")


def test_where_there_is_nothing_to_show_it_says_what_to_do(open_page: OpenPage) -> None:
    page = open_page("tag")
    use(page, "tag")
    answer_with(page, "tag", results=[[]])
    page.get_by_label("Text").fill("nothing here")
    expect(page.locator(".legend")).to_contain_text("Nothing was found in this text. This model marks")
    page.get_by_role("link", name="Embed").click()
    page.get_by_label("Texts, one a line").fill("A dog.")

    expect(page.get_by_text("Write a second line")).to_be_visible()
    expect(page.locator(".lines")).not_to_have_css("padding-right", "0px")  # where the number of a Hebrew line stands
