"""How the page looks where little fits, where colours are a person's own, and where texts are long."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.service.page.conftest import OpenPage
from tests.service.page.test_screens import problems_of, use

pytestmark = pytest.mark.browser

COLOUR = "each => getComputedStyle(each).backgroundColor"
NARROWEST = 320
COVERED = """() => {
    const [focused, nav] = [document.activeElement, document.querySelector("nav")];
    if (focused === document.body || focused.closest("nav, header, .skip")) return false;
    return focused.getBoundingClientRect().top < nav.getBoundingClientRect().bottom;
}"""


def colour(locator: Locator) -> str:
    found: str = locator.first.evaluate(COLOUR)
    return found


def test_a_picture_fits_the_narrowest_telephone(open_page: OpenPage) -> None:
    page = open_page("classify", width=NARROWEST)
    page.get_by_label("Model").select_option("fashion")
    use(page, "classify")

    assert page.evaluate("document.documentElement.scrollWidth") == NARROWEST


def test_long_names_are_shown_whole(open_page: OpenPage) -> None:
    page = open_page("classify")
    page.get_by_label("Model").select_option("entailment")
    label = "a question about the weather in Germany"
    page.get_by_label("Labels of your own").fill(f"{label}, {'x' * 60}")
    name = page.get_by_role("list", name="Labels").locator(".name")
    expect(name.filter(has_text=label)).to_be_visible()

    assert name.evaluate_all("all => all.every(each => each.scrollWidth <= each.clientWidth)")


def test_what_has_the_focus_is_not_behind_the_navigation(open_page: OpenPage) -> None:
    page = open_page("generate", width=NARROWEST)
    use(page, "generate")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.get_by_role("link", name="Metrics").focus()
    for _ in range(25):
        page.keyboard.press("Shift+Tab")

        assert not page.evaluate(COVERED), page.evaluate("document.activeElement.outerHTML")


def test_bars_words_and_choices_stand_out_in_a_persons_own_colours(open_page: OpenPage) -> None:
    page = open_page("classify")
    use(page, "classify")
    page.locator("details.call").evaluate("each => each.open = true")
    page.emulate_media(forced_colors="active")
    choices = page.get_by_role("group", name="Form").get_by_role("button")

    assert colour(page.locator(".bar > span")) != colour(page.locator(".bar"))
    pressed = page.get_by_role("group", name="Form").locator("[aria-pressed=true]")
    assert colour(pressed) != colour(choices.last)
    expect(page.locator(".legend .word.for")).to_have_css("border-bottom-style", "solid")
    expect(page.locator(".legend .word.against")).to_have_css("border-bottom-style", "dotted")


def test_a_long_text_is_scrolled_by_the_keyboard_and_printed_whole(open_page: OpenPage) -> None:
    page = open_page("tag")
    use(page, "tag")
    entity = {"start": 0, "end": 3, "label": "PER", "score": 0.9, "text": "Ann"}
    answer = {"model": "entities", "results": [[entity]], "usage": {"prompt_tokens": 9, "completion_tokens": 0}}
    page.route("**/tag", lambda route: route.fulfill(json=answer))
    page.get_by_label("Text").fill("Ann went home.")
    text = page.locator(".reading")
    expect(text).to_have_text("Ann (PER) went home.")
    expect(text).not_to_have_attribute("tabindex", re.compile(""))  # all of it is seen
    page.get_by_label("Text").fill("Ann went home and came back again. " * 150)
    expect(page.get_by_role("region", name="Entities")).to_be_visible()
    page.get_by_label("Text").focus()
    page.keyboard.press("Tab")
    expect(text).to_be_focused()
    assert problems_of(page) == []

    page.emulate_media(media="print")
    assert text.evaluate("each => each.scrollHeight === each.clientHeight")


def test_labels_are_read_beside_the_navigation_of_a_tablet(open_page: OpenPage) -> None:
    page = open_page("classify", width=768)
    use(page, "classify")

    assert min(page.locator(".bars .name").evaluate_all("all => all.map(each => each.clientWidth)")) > 80
    strip = page.locator(".live > *:visible:not(ul)").evaluate_all("all => all.map(each => each.offsetTop)")
    assert max(strip) - min(strip) < 20  # one row


def test_alternatives_of_a_token_are_in_sight_on_a_telephone(open_page: OpenPage) -> None:
    page = open_page("generate", width=390, touch=True)
    use(page, "generate")
    height = page.evaluate("document.documentElement.scrollHeight")
    token = page.locator(".token").nth(2)
    token.click()

    expect(page.locator(".others").first).to_be_in_viewport(ratio=1)
    expect(token).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.documentElement.scrollHeight") == height  # nothing has moved
    alternatives = page.get_by_role("list", name="Alternatives")
    page.get_by_role("button", name="Close").click()
    expect(alternatives).to_have_count(0)
    token.click()
    expect(alternatives.first).to_be_visible()
    page.keyboard.press("Escape")
    expect(alternatives).to_have_count(0)


def test_paper_has_the_results_in_their_colours_and_no_controls(open_page: OpenPage) -> None:
    page = open_page("classify", scheme="dark")
    use(page, "classify")
    page.emulate_media(media="print")
    for hidden in ("nav", ".top", "footer", ".samples", "details.call"):
        expect(page.locator(hidden).first).to_be_hidden()
    for coloured in (".bar > span", ".word"):
        expect(page.locator(coloured).first).to_have_css("print-color-adjust", "exact")
    expect(page.locator("body")).to_have_css("background-color", "rgb(250, 249, 246)")

    labels, words = (panel.bounding_box() for panel in page.locator(".columns > .panel").all())
    assert labels and words and words["y"] >= labels["y"] + labels["height"]
