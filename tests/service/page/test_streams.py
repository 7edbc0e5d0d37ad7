"""Streams on the page: stopped by a person, or refused by the server."""

from __future__ import annotations

import json
import re
import time
from typing import Any, Literal

import httpx
import pytest
from playwright.sync_api import Page, Request, Route, expect

from service.engine.runner import Runner
from tests.service.page.conftest import OpenPage, hold, wait_until

pytestmark = pytest.mark.browser

STEP_S = 0.05
TOKENS = 100


@pytest.fixture
def slow_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each step of a model take so long that a person can press a button meanwhile."""
    run = Runner.run

    def run_slowly(runner: Runner, batch: Any) -> Any:
        time.sleep(STEP_S)
        return run(runner, batch)

    monkeypatch.setattr(Runner, "run", run_slowly)


def change_requests(page: Page, path: str = "generate", **fields: Any) -> None:
    """Change what the page sends on its way."""

    def change(route: Route) -> None:
        asked: dict[str, Any] = route.request.post_data_json or {}
        route.continue_(post_data={**asked, **fields})

    page.route(f"**/{path}", change)


def chat_model(address: str) -> Any:
    """Return how busy the model that both screens ask is."""
    return httpx.get(f"{address}/live").json()["models"]["chat"]


@pytest.mark.usefixtures("slow_steps")
@pytest.mark.parametrize(
    ("screen", "begin", "role", "focused"),
    [("generate", "Generate", "button", "Generate"), ("chat", "Send", "textbox", "Message")],
)
def test_stop_ends_a_stream_and_frees_its_slot(
    open_page: OpenPage, address: str, screen: str, begin: str, role: Literal["button", "textbox"], focused: str
) -> None:
    page = open_page(screen)
    call = page.locator("details.call")
    expect(call).to_be_hidden()  # nothing was asked
    change_requests(page, min_tokens=TOKENS)
    page.get_by_label("Most tokens").first.fill(str(TOKENS))
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_disabled()
    before = chat_model(address)["tokens"]
    page.get_by_role("button", name=begin, exact=True).click()
    expect(page.locator(".token").nth(8)).to_be_attached()  # by then the counts are written
    during = chat_model(address)
    stop.click()
    stopped = time.monotonic()
    expect(page.get_by_role("status")).to_have_text("Stopped.")
    while chat_model(address)["slots_used"]:
        assert time.monotonic() < stopped + TOKENS * STEP_S / 2, "its sequence went on without a reader"
        time.sleep(STEP_S)

    call.evaluate("each => each.open = true")
    expect(call.locator("pre")).to_contain_text(f'"max_tokens":{TOKENS}')
    assert during["slots_used"] == during["running"] == 1
    expect(stop).to_be_disabled()
    expect(page.get_by_role(role, name=focused, exact=True)).to_be_focused()
    text = page.locator(".stream").first.text_content()
    assert text
    time.sleep(10 * STEP_S)
    assert page.locator(".stream").first.text_content() == text
    assert chat_model(address)["tokens"] < before + TOKENS


@pytest.mark.usefixtures("slow_steps")
def test_a_summary_that_is_stopped_stays_as_far_as_it_was_written(open_page: OpenPage) -> None:
    page = open_page("summarize")
    change_requests(page, "summarize", min_tokens=TOKENS, max_tokens=TOKENS)
    copy = page.get_by_role("button", name="Copy", exact=True).first
    expect(copy).to_be_hidden()
    page.get_by_role("button", name="Summarize").click()
    expect(page.locator(".stream")).not_to_be_empty()
    page.get_by_label("Text", exact=True).fill("Another text.")  # while the first one is written of
    expect(page.get_by_text("What stands below is of the input before.")).to_be_visible()
    page.get_by_role("button", name="Stop").click()

    expect(page.get_by_role("status")).to_have_text("Stopped.")
    expect(page.locator("p.heard")).not_to_be_empty()
    expect(page.get_by_role("button", name="Summarize")).to_be_focused()
    expect(page.locator(".stream")).not_to_be_empty()
    expect(copy).to_be_visible()


@pytest.mark.usefixtures("slow_steps")
def test_a_new_conversation_has_nothing_of_one_that_was_still_answered(open_page: OpenPage) -> None:
    page = open_page("chat")
    change_requests(page, min_tokens=TOKENS)
    page.get_by_label("Most tokens").fill(str(TOKENS))
    roles: list[list[str]] = []

    def note(request: Request) -> None:
        if request.url.endswith("/generate"):
            roles.append([message["role"] for message in (request.post_data_json or {})["messages"]])

    page.on("request", note)
    page.get_by_label("Message").fill("Once")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".token").nth(3)).to_be_attached()
    page.get_by_role("button", name="New conversation").click()
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    expect(page.get_by_role("status")).to_be_empty()
    page.get_by_label("Message").fill("The dog")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".bubble.user")).to_have_text("The dog")
    expect(page.locator(".token").nth(3)).to_be_attached()

    assert roles == [["user"], ["user"]]


@pytest.mark.usefixtures("slow_steps")
def test_what_is_sent_twice_is_sent_once_and_an_impatient_click_cuts_nothing(open_page: OpenPage) -> None:
    page = open_page("chat")
    change_requests(page, min_tokens=TOKENS)
    page.get_by_label("Most tokens").fill(str(TOKENS))
    message, send = page.get_by_label("Message"), page.get_by_role("button", name="Send")
    message.fill("Once")
    send.dblclick()
    message.press("Enter")
    expect(page.locator(".bubble.user")).to_have_text("Once")
    message.fill("The dog")
    message.press("Enter")  # before an answer, or in its midst
    expect(page.locator(".token").nth(3)).to_be_attached()
    send.click()

    expect(page.locator(".bubble.user")).to_have_text(["Once", "The dog"])
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status")).to_have_text("Stopped.")


@pytest.mark.usefixtures("slow_steps")
def test_the_end_of_a_long_answer_stays_in_sight_unless_one_reads_above(open_page: OpenPage) -> None:
    page = open_page("chat")
    change_requests(page, min_tokens=TOKENS)
    page.get_by_label("Most tokens").fill(str(TOKENS))
    log = page.get_by_role("log")
    log.evaluate("each => { each.style.maxHeight = '3rem'; }")
    page.get_by_role("button", name="Send").click()
    hidden = "each => each.scrollHeight - each.scrollTop - each.clientHeight"
    log_itself = "document.querySelector('[role=log]')"
    wait_until(page, f"{log_itself}.scrollHeight - {log_itself}.clientHeight >= 60")
    assert log.evaluate("each => each.scrollTop") > 0
    assert log.evaluate(hidden) < 60

    log.evaluate("each => each.scrollTo({ top: 0 })")
    written = log.evaluate("each => each.textContent.length")
    wait_until(page, f"{log_itself}.textContent.length > {written}")
    assert log.evaluate("each => each.scrollTop") == 0
    page.get_by_role("button", name="Stop").click()


def test_a_conversation_that_is_refused_can_be_said_in_other_words(open_page: OpenPage, address: str) -> None:
    page = open_page("chat")
    change_requests(page, model="stories")  # which has no chat template
    page.get_by_label("Message").fill("Who is Dan?")
    page.get_by_role("button", name="Send").click()
    asked = {"model": "stories", "messages": [{"role": "user", "content": "Who is Dan?"}]}
    refused = httpx.post(f"{address}/generate", json=asked)

    assert refused.status_code == 422 and "no chat template" in refused.json()["error"]["message"]
    expect(page.get_by_role("alert")).to_have_text(f"Message: {refused.json()['error']['message']}")
    expect(page.get_by_label("Message")).to_have_value("Who is Dan?")
    expect(page.locator(".bubble")).to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    page.unroute("**/generate")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status")).to_contain_text("tokens")
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_conversation_that_is_too_long_is_told_apart_from_a_message(open_page: OpenPage) -> None:
    page = open_page("chat")
    message, alert = page.get_by_label("Message"), page.get_by_role("alert")
    message.fill("Dan " * 1000)
    message.press("Enter")
    expect(alert).to_have_text(re.compile("^Message: .* Make it shorter"))
    expect(message).to_have_attribute("aria-invalid", "true")
    message.fill("Dan")
    message.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("tokens")
    message.fill("Dan " * 1000)
    message.press("Enter")

    expect(alert).to_have_text("This conversation is too long for this model; begin a new one")
    expect(message).not_to_have_attribute("aria-invalid", "true")


def test_a_message_that_is_refused_stands_before_what_was_typed_since(open_page: OpenPage) -> None:
    page = open_page("chat")
    held = hold(page, "generate")
    message = page.get_by_label("Message")
    message.fill("Who is Dan?")
    with page.expect_request("**/generate"):
        message.press("Enter")
    message.fill("And who is Ann?")
    held[0].fulfill(status=429, json={"error": {"code": "overloaded", "message": "No room", "param": None}})

    expect(message).to_have_value("Who is Dan?\nAnd who is Ann?")
    expect(page.get_by_role("alert")).to_have_text("No room")
    page.get_by_role("button", name="New conversation").click()
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.locator("details.call")).to_be_hidden()


@pytest.mark.parametrize(("screen", "begin"), [("generate", "Generate"), ("chat", "Send")])
def test_stop_ends_the_wait_for_a_key(open_page: OpenPage, screen: str, begin: str) -> None:
    page = open_page(screen)
    refused = {"error": {"code": "unauthorized", "message": "key", "param": None}}
    page.route("**/generate", lambda route: route.fulfill(status=401, json=refused))
    page.get_by_role("button", name=begin, exact=True).click()
    expect(page.locator("form.key")).to_be_visible()
    page.get_by_role("button", name="Stop").click()

    expect(page.get_by_role("status")).to_have_text("Stopped.")
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()


def test_a_stream_that_fails_is_the_newest_call_with_what_came(open_page: OpenPage) -> None:
    page = open_page("generate")
    failed = {"error": {"code": "internal", "message": "The model failed", "param": None}}
    body = f'data: {{"index":0,"text":" Once"}}\n\nevent: error\ndata: {json.dumps(failed)}\n\n'
    page.route("**/generate", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.get_by_role("button", name="Generate", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text("The model failed")
    call = page.locator("details.call")
    call.evaluate("each => each.open = true")
    call.get_by_role("button", name="JSON", exact=True).click()

    assert json.loads(call.locator("pre").text_content() or "")["events"] == [{"index": 0, "text": " Once"}]


@pytest.mark.parametrize(("screen", "begin", "most"), [("generate", "Generate", 120), ("chat", "Send", 160)])
def test_a_number_that_was_emptied_is_there_again_and_asked_for(
    open_page: OpenPage, screen: str, begin: str, most: int
) -> None:
    page = open_page(screen)
    field = page.get_by_label("Most tokens").first
    field.fill("")
    with page.expect_request("**/generate") as asked:
        page.get_by_role("button", name=begin, exact=True).click()

    assert (asked.value.post_data_json or {})["max_tokens"] == most
    expect(field).to_have_value(str(most))


def test_one_token_is_one_token(open_page: OpenPage) -> None:
    page = open_page("generate")
    page.get_by_label("Most tokens").first.fill("1")
    page.get_by_role("button", name="Generate", exact=True).click()

    expect(page.get_by_role("region", name="Setting A")).to_contain_text("1 token, the first after")
