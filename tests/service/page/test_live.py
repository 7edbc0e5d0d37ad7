"""The strip above all screens: what the server is doing, or that it does not answer."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.service.page.conftest import MODELS, OpenPage, wait_until

pytestmark = pytest.mark.browser

AN_HOUR_LATER = (
    "(() => { const now = performance.now.bind(performance); performance.now = () => now() + 3_600_000; })()"
)


def reading(node: str, at: float, requests: int) -> dict[str, Any]:
    return {"node": node, "at": at, "requests": requests, "models": {}}


def test_the_strip_shows_what_the_server_does(open_page: OpenPage) -> None:
    page = open_page("generate")
    page.get_by_label("What the server is doing").locator("summary").click()

    expect(page.locator(".live li")).to_have_count(len(MODELS) + 3)  # and those that write
    expect(page.locator(".live li", has_text="chat").locator(".slots i")).not_to_have_count(0)
    expect(page.locator(".told")).to_contain_text("tokens/s")
    # A rate stands there until the server is asked again, which may be sooner than anybody looks.
    page.evaluate(
        """() => {
            window.seen = [];
            const rows = () => [...document.querySelectorAll(".live li")];
            const note = () => window.seen.push(...rows().map((row) => row.textContent));
            new MutationObserver(note).observe(document.body, { childList: true, subtree: true, characterData: true });
        }"""
    )
    with page.expect_response("**/live") as asked:
        page.get_by_role("button", name="Generate", exact=True).click()
    assert len(asked.value.body()) < 2000
    wait_until(page, r"window.seen.some((text) => /^chat.*[1-9][0-9]* tokens\/s/.test(text))")


def test_the_strip_takes_no_rate_from_the_counters_of_two_nodes(open_page: OpenPage) -> None:
    page, asked = open_page("generate"), []
    expect(page.locator(".told")).to_contain_text("· 0 tokens/s")

    def another_node(route: Route) -> None:  # each idle, and each with tokens of its own behind it
        asked.append(time.time())
        tokens = 5_000_000 * (len(asked) % 2)
        busy = {"running": 0, "waiting": 0, "slots_used": 0, "slots": 64, "tokens": tokens}
        node = {"node": str(tokens), "at": asked[-1], "requests": 0, "models": {"chat": busy}}
        route.fulfill(json=node)

    page.route("**/live", another_node)
    while len(asked) < 5:
        assert "· 0 tokens/s" in page.locator(".told").inner_text()
        page.wait_for_timeout(200)


def test_a_server_that_is_gone_is_busy_no_more_and_believed_when_it_is_back(open_page: OpenPage) -> None:
    page = open_page("generate")
    page.get_by_label("What the server is doing").locator("summary").click()
    expect(page.locator(".live li")).not_to_have_count(0)
    page.route("**/live", lambda route: route.abort("connectionrefused"))

    expect(page.locator(".told")).to_contain_text("The server does not answer")
    expect(page.locator(".live li, .live .curve")).to_have_count(0)
    an_hour_ago = time.time() - 3600
    page.route("**/live", lambda route: route.fulfill(json=reading("another", an_hour_ago, 7)))
    expect(page.locator(".told")).to_contain_text("7 requests")


def test_a_server_that_refuses_is_not_told_to_be_gone(open_page: OpenPage) -> None:
    page = open_page("generate")
    refused = {"error": {"code": "overloaded", "message": "Too many requests", "param": None}}
    page.route("**/live", lambda route: route.fulfill(status=429, json=refused))

    expect(page.locator(".told")).to_have_text("Too many requests.")


def test_the_node_that_answers_is_believed_in_the_end_whatever_its_clock(open_page: OpenPage) -> None:
    page = open_page("generate")
    expect(page.locator(".told")).to_contain_text("requests")
    an_hour_ago = time.time() - 3600
    page.route("**/live", lambda route: route.fulfill(json=reading("another", an_hour_ago, 7)))
    for _ in range(2):
        with page.expect_response("**/live"):
            pass
        assert "7 requests" not in page.locator(".told").inner_text()  # several may answer in turn
    page.evaluate(AN_HOUR_LATER)

    expect(page.locator(".told")).to_contain_text("7 requests")


def test_a_strip_that_is_closed_makes_no_rows(open_page: OpenPage) -> None:
    page = open_page("generate")
    expect(page.locator(".told")).to_contain_text("requests")
    assert page.locator(".live li").count() == 0
    summary = page.get_by_label("What the server is doing").locator("summary")
    summary.click()
    expect(page.locator(".live li")).not_to_have_count(0)
    summary.click()

    expect(page.locator(".live li")).to_have_count(0)


@pytest.mark.parametrize("width", [320, 380, 410])
def test_larger_numbers_move_nothing_on_a_telephone(open_page: OpenPage, width: int) -> None:
    page = open_page("tag", width=width)
    heights = page.locator(".top").evaluate(
        """each => [1, 1234].map((count) => {
            const text = `${count} requests in progress · ${count} tokens/s · ${count} waiting`;
            each.querySelector(".told").textContent = text;
            return each.offsetHeight;
        })"""
    )

    assert heights[0] == heights[1]


def test_the_strip_can_be_paused_and_its_name_stays(open_page: OpenPage) -> None:
    page, counts = open_page("tag"), count(1)
    page.route("**/live", lambda route: route.fulfill(json=reading("one", time.time(), next(counts))))
    strip = page.get_by_label("What the server is doing")
    expect(page.locator(".told")).to_contain_text("requests")
    expect(strip.locator("summary")).to_have_accessible_name("Models")
    strip.get_by_role("button", name="Pause").click()
    before = page.locator(".told").text_content()
    page.wait_for_timeout(2500)
    assert page.locator(".told").text_content() == before
    strip.get_by_role("button", name="Resume").click()

    expect(page.locator(".told")).not_to_have_text(before or "")
    expect(strip.get_by_role("button", name="Pause")).to_be_focused()


@pytest.mark.parametrize(("used", "lit"), [(0, 0), (1, 1), (64, 16), (256, 64)])
def test_as_much_of_a_row_is_lit_as_of_many_slots_is_used(open_page: OpenPage, used: int, lit: int) -> None:
    page = open_page("tag")
    busy = {"running": used, "waiting": 0, "slots_used": used, "slots": 256, "tokens": 0}
    page.route(
        "**/live", lambda route: route.fulfill(json={**reading("one", time.time(), 1), "models": {"chat": busy}})
    )
    page.reload()
    page.get_by_label("What the server is doing").locator("summary").click()

    row = page.locator(".live li", has_text="chat")
    expect(row).to_contain_text(f"{used} of 256 slots")
    expect(row.locator(".slots i")).to_have_count(64)
    expect(row.locator(".slots i.on")).to_have_count(lit)
