"""The screen of translation: two languages, their texts, and the words that correspond."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.service.page.conftest import OpenPage, hold
from tests.service.page.test_screens import use

pytestmark = pytest.mark.browser


def test_a_translation_says_which_language_it_is_in(open_page: OpenPage) -> None:
    page = open_page("translate")
    expect(page.locator(".reading.large")).to_have_attribute("lang", page.get_by_label("Into").input_value())
    expect(page.locator(".reading.partners")).to_have_attribute("lang", "en")


def test_a_word_lights_up_with_its_partner(open_page: OpenPage) -> None:
    page = open_page("translate")
    with page.expect_response(lambda answer: "Dan loves ice" in (answer.request.post_data or "")):
        page.get_by_label("Text", exact=True).fill("Dan loves ice cream.")
    expect(page.locator(".pair").first).to_be_visible()
    page.locator(".pair").first.focus()

    lit = page.locator(".pair.lit")
    expect(lit).not_to_have_count(0)
    assert {"partners", "large"} <= set(
        " ".join(lit.evaluate_all("all => all.map(e => e.parentElement.className)")).split()
    )


def test_a_translation_that_was_cut_says_so(open_page: OpenPage) -> None:
    page = open_page("translate")
    text = page.get_by_label("Text", exact=True)
    text.fill("Dan loves ice cream.")  # the tiny translator knows no end

    expect(page.get_by_text("Cut: it had no end")).to_be_visible()
    text.fill("42")
    expect(page.get_by_text("Cut: it had no end")).to_have_count(0)


def test_languages_are_swapped_with_their_texts_and_back_again(open_page: OpenPage) -> None:
    page = open_page("translate")
    use(page, "translate")
    text, swap = page.get_by_label("Text", exact=True), page.get_by_role("button", name="Swap")
    own, translation = text.input_value(), page.locator(".reading.large").text_content()
    hold(page, "translate")
    swap.click()
    expect(page.get_by_label("From")).to_have_value("de")
    expect(page.get_by_label("Into")).to_have_value("en")
    expect(text).to_have_value(translation or "")
    swap.click()

    expect(page.get_by_label("From")).to_have_value("en")
    expect(text).to_have_value(own)


def test_a_swap_keeps_a_text_that_is_not_translated_yet(open_page: OpenPage) -> None:
    page = open_page("translate")
    use(page, "translate")
    hold(page, "translate")
    text = page.get_by_label("Text", exact=True)
    text.fill("Where is the station?")
    page.get_by_role("button", name="Swap").click()

    expect(page.get_by_label("From")).to_have_value("de")
    expect(text).to_have_value("Where is the station?")


def test_a_swap_takes_no_translation_into_another_language(open_page: OpenPage) -> None:
    page = open_page("translate")
    use(page, "translate")
    own = page.get_by_label("Text", exact=True).input_value()
    hold(page, "translate")
    page.get_by_label("Into").select_option("sv")
    page.get_by_role("button", name="Swap").click()

    expect(page.get_by_label("From")).to_have_value("sv")
    expect(page.get_by_label("Text", exact=True)).to_have_value(own)
