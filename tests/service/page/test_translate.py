"""The screen of translation: two languages, their texts, and the words that correspond."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.conftest import MakePackage, with_manifest
from tests.service.page.conftest import OpenPage, hold, serving
from tests.service.page.test_screens import use

pytestmark = pytest.mark.browser

USAGE = {"prompt_tokens": 3, "completion_tokens": 3}
PAIRS = [
    {"source": source, "target": target} for source, target in (([0, 1], [0, 3]), ([2, 5], [4, 8]), ([6, 12], [9, 16]))
]
HEBREW_PAIRS = [
    {"source": source, "target": target} for source, target in (([0, 1], [0, 4]), ([2, 5], [5, 8]), ([6, 12], [9, 11]))
]


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


def test_a_translation_is_selected_with_the_mouse_and_copied(open_page: OpenPage) -> None:
    page = open_page("translate")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    use(page, "translate")
    answer = {"translations": ["Der Hund schläft"], "alignment": [PAIRS]}
    page.route("**/translate", lambda route: route.fulfill(json={"model": "translate", **answer, "usage": USAGE}))
    page.get_by_label("Text", exact=True).fill("A dog sleeps")
    words = page.locator(".reading.large .pair")
    expect(words).to_have_text(["Der", "Hund", "schläft"])
    first, last = words.first.bounding_box(), words.last.bounding_box()
    assert first and last
    page.mouse.move(first["x"] + 1, first["y"] + 8)
    page.mouse.down()
    page.mouse.move(last["x"] + last["width"] - 1, last["y"] + 8, steps=5)
    page.mouse.up()
    assert page.evaluate("getSelection().toString()") == "Der Hund schläft"

    page.get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "Der Hund schläft"


def test_arrows_go_through_words_as_they_stand(open_page: OpenPage) -> None:
    page = open_page("translate")
    use(page, "translate")
    answer = {"translations": ["הכלב ישן פה"], "alignment": [HEBREW_PAIRS]}
    page.route("**/translate", lambda route: route.fulfill(json={"model": "translate", **answer, "usage": USAGE}))
    page.get_by_label("Text", exact=True).fill("A dog sleeps")
    words = page.locator(".reading.large .pair")
    expect(words).to_have_text(["הכלב", "ישן", "פה"])
    words.first.focus()
    page.keyboard.press("ArrowRight")  # where nothing stands
    expect(words.first).to_be_focused()
    page.keyboard.press("ArrowLeft")

    expect(words.nth(1)).to_be_focused()


@pytest.mark.parametrize(
    ("source", "text"), [("de", "Der kleine Hund schläft unter dem alten Baum."), ("fi", "")], ids=["de", "fi"]
)
@pytest.mark.parametrize("screen", ["translate", "inside"])
def test_a_translator_of_another_language_begins_with_a_text_in_it_or_with_none(
    open_page: OpenPage, make_package: MakePackage, tmp_path: Path, screen: str, source: str, text: str
) -> None:
    package = make_package("translate")
    assert package.manifest.languages
    languages = {"directions": [[source, "en"]], "ids": package.manifest.languages.ids}
    into_english = with_manifest(package, tmp_path / source, languages=languages)
    with serving([into_english]) as address:
        page = open_page(screen, at=address)
        expect(page.get_by_label("From")).to_have_value(source)
        expect(page.get_by_label("Text", exact=True)).to_have_value(text)
        if not text:
            page.get_by_label("Text", exact=True).fill("Dan")
        use(page, screen)
        expect(page.get_by_role("alert")).to_be_hidden()
        page.close()
