"""The page by keyboard: the focus stays where a person is, and everything is within reach."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.service.page.conftest import OpenPage
from tests.service.page.test_screens import use

pytestmark = pytest.mark.browser


def test_the_focus_stays_on_the_label_that_is_chosen(open_page: OpenPage) -> None:
    page = open_page("classify")
    label = page.get_by_role("list", name="Labels").get_by_role("button").nth(1)
    label.focus()
    page.keyboard.press("Enter")

    expect(label).to_have_attribute("aria-pressed", "true")
    expect(label).to_be_focused()


def test_the_word_that_was_chosen_is_pressed_and_keeps_the_focus(open_page: OpenPage) -> None:
    page = open_page("fill")
    words = page.get_by_role("list", name="Candidates for missing word").get_by_role("button")
    expect(words).not_to_have_count(0)
    words.nth(1).focus()
    page.keyboard.press("Enter")

    expect(words.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(words.nth(0)).to_have_attribute("aria-pressed", "false")
    expect(words.nth(1)).to_be_focused()


def test_a_text_of_many_tokens_is_one_stop_and_arrows_go_through_it(open_page: OpenPage) -> None:
    page = open_page("generate")
    page.get_by_role("button", name="Generate", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("tokens")
    tokens = page.locator(".token")
    assert tokens.evaluate_all("all => all.filter(each => each.tabIndex === 0).length") == 1
    tokens.first.focus()
    page.keyboard.press("ArrowRight")

    expect(tokens.nth(1)).to_be_focused()
    expect(page.get_by_role("list", name="Alternatives").first).to_be_visible()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(tokens.first).to_be_focused()


# The controls of the screen that is shown, but for those that are reached from another one by arrows.
CONTROLS = """() => [...document.querySelectorAll("main :is(a[href], button, input, select, textarea, summary)")]
    .filter((each) => !each.disabled && each.checkVisibility())
    .filter((each) => each.tabIndex === 0 || !each.matches(".pair, .tokens .chip, .head-button"))"""


@pytest.mark.parametrize("screen", ["classify", "generate", "translate", "inside"])
def test_everything_is_reached_by_the_keyboard(open_page: OpenPage, screen: str) -> None:
    page = open_page(screen)
    use(page, screen)
    page.evaluate(f"window.left = new Set(({CONTROLS})())")
    assert page.evaluate("left.size") > 4
    page.locator("#main").focus()
    for _ in range(page.evaluate("left.size") + 12):  # lists that can be scrolled are reached, too
        page.keyboard.press("Tab")
        page.evaluate("left.delete(document.activeElement)")

    assert page.evaluate("[...left].map(each => each.outerHTML)") == []
