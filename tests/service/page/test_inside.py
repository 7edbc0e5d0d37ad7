"""The screen that looks inside a model: its heads, its tokens, and one word in several contexts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.conftest import MakePackage, with_manifest
from tests.service.page.conftest import OpenPage, serving
from tests.service.page.test_screens import use

pytestmark = pytest.mark.browser

REFUSED = {"error": {"code": "overloaded", "message": "There is no room", "param": None}}


def open_contexts(page: Page) -> None:
    page.get_by_text("One word, two meanings").click()
    expect(page.locator(".matrix")).to_be_visible()


def asks_for_vectors(request: Request) -> bool:
    return '"vectors":true' in (request.post_data or "")


def test_a_head_is_shown_large(open_page: OpenPage) -> None:
    page = open_page("inside")
    head = page.get_by_role("button", name="Layer 2, head 3")
    head.click()

    expect(head).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("heading", name="Layer 2, head 3")).to_be_visible()


def test_a_token_tells_where_it_looks(open_page: OpenPage) -> None:
    page = open_page("inside")
    tokens = page.get_by_role("group", name="The token that looks").get_by_role("button")
    told, strip = page.get_by_text("looks most at"), page.locator(".strip .word")
    expect(tokens.nth(0)).to_have_attribute("aria-pressed", "true")
    expect(told).to_contain_text(f"“{tokens.nth(0).text_content()}” looks")
    weights = strip.evaluate_all("all => all.map(each => each.title)")
    tokens.nth(2).focus()

    expect(told).to_contain_text(f"“{tokens.nth(2).text_content()}” looks")
    expect(tokens.nth(2)).to_have_attribute("aria-pressed", "true")
    expect(tokens.nth(0)).to_have_attribute("aria-pressed", "false")
    expect(told).to_have_attribute("aria-live", "polite")
    assert strip.evaluate_all("all => all.map(each => each.title)") != weights


def test_of_a_long_text_as_many_layers_are_shown_as_may_be_asked_for(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_page("inside")
    expect(page.get_by_role("button", name="Layer 1, head 1")).to_be_visible()
    monkeypatch.setattr("service.tasks.explaining.showing.MAX_NUMBERS", 4 * 40 * 40)
    page.get_by_label("Text", exact=True).fill("good " * 36)

    expect(page.get_by_text("Of so long a text the attention of 1 of 2 layers is shown.")).to_be_visible()
    expect(page.get_by_role("button", name="Layer 2, head 1")).to_be_visible()
    expect(page.get_by_role("button", name="Layer 1, head 1")).to_have_count(0)


def test_inside_says_how_large_a_model_is(open_page: OpenPage, make_package: MakePackage) -> None:
    page = open_page("inside")
    page.get_by_label("Model").select_option("translate")
    facts = page.locator(".facts")
    use(page, "inside")

    expect(facts).to_contain_text(f"Parameters{make_package('translate').manifest.parameters:,}")
    expect(facts).to_contain_text("Layers2 encoder + 2 decoder")
    expect(facts).to_contain_text("Heads4 × 8")
    expect(facts).to_contain_text(f"Longest text{make_package('translate').manifest.limits.max_input_tokens} tokens")
    expect(facts).to_contain_text("Feed-forward32 → 64 → 32")


def test_a_word_is_found_as_a_word_and_what_is_left_out_is_told_of(open_page: OpenPage) -> None:
    page = open_page("inside")
    open_contexts(page)
    lines = page.get_by_label("Sentences with it")
    lines.fill("The Bank gave him a loan.\nThe embankment fell.\nHe sat on the bank.\nA dog.")
    page.get_by_role("button", name="Compare").click()

    expect(page.get_by_text("2 sentences without this word are left out.")).to_be_visible()
    expect(page.locator(".matrix tbody th")).to_have_text(["1 The Bank gave him a loan.", "2 He sat on the bank."])


@pytest.mark.parametrize("word", ["C++", "银行"])
def test_a_word_may_have_any_signs_and_stand_without_spaces(open_page: OpenPage, word: str) -> None:
    page = open_page("inside")
    open_contexts(page)
    page.get_by_role("textbox", name="Word").fill(word)
    page.get_by_label("Sentences with it").fill("I write C++ now.\n我去银行取钱。")
    page.get_by_role("button", name="Compare").click()

    expect(page.get_by_text("1 sentence without this word is left out.")).to_be_visible()
    expect(page.locator(".matrix tbody th")).to_contain_text(word)


def test_words_that_could_not_be_compared_are_told_of_until_they_are(open_page: OpenPage) -> None:
    page = open_page("inside")
    open_contexts(page)
    page.route("**/explain", lambda route: route.fulfill(status=429, json=REFUSED))
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("alert")).to_have_text("There is no room")
    expect(page.get_by_role("status")).to_contain_text("tokens")  # of the text above, which stays
    page.unroute("**/explain")
    page.get_by_role("button", name="Compare").click()

    expect(page.locator(".matrix")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_words_of_the_model_before_are_asked_about_no_more(open_page: OpenPage) -> None:
    page, held = open_page("inside"), list[Route]()
    use(page, "inside")
    page.route("**/explain", lambda route: held.append(route) if asks_for_vectors(route.request) else route.continue_())
    with page.expect_request(asks_for_vectors):
        page.get_by_text("One word, two meanings").click()
    with page.expect_event("requestfailed", asks_for_vectors):
        page.get_by_label("Model").select_option("embed")

    expect(page.get_by_role("status")).to_contain_text("tokens")
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_ranker_that_reads_pairs_alone_is_not_looked_into(
    open_page: OpenPage, make_package: MakePackage, tmp_path: Path
) -> None:
    ranker = make_package("ranker")
    alone = with_manifest(ranker, tmp_path / "alone", task="rerank")
    pairs = with_manifest(ranker, tmp_path / "pairs", task="rerank", pair_text={"before": "Asked: "})
    with serving([alone, pairs]) as address:
        page = open_page("inside", at=address)
        expect(page.get_by_label("Model").get_by_role("option")).to_have_text(["alone"])
        use(page, "inside")
        page.close()


def test_a_large_map_has_the_weights_of_a_long_text(open_page: OpenPage) -> None:
    page = open_page("inside")
    use(page, "inside")
    page.get_by_label("Text", exact=True).fill("good " * 50)
    expect(page.get_by_role("group", name="The token that looks").get_by_role("button")).to_have_count(52)
    drawn = """each => {
        const { data } = each.getContext("2d").getImageData(0, 0, each.width, each.height);
        return new Set(data.filter((_, place) => place % 4 === 3)).size;
    }"""

    for canvas in (page.locator(".thumb").first, page.locator("canvas.large")):
        assert canvas.evaluate(drawn) > 10  # as many degrees


def test_how_likely_a_layers_token_is_can_be_read(open_page: OpenPage) -> None:
    page = open_page("inside")
    page.get_by_label("Model").select_option("chat")
    cells = page.locator(".lens td.settled")
    expect(cells).not_to_have_count(0)

    expect(cells.first).to_have_text(re.compile(r"\d %$"))
