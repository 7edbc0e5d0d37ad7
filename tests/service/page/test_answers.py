"""What the page does where an answer is late, cut, or none at all, and where a key is asked for meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.service.page.conftest import PATIENCE_MS, OpenPage, hold
from tests.service.page.test_live import AN_HOUR_LATER
from tests.service.page.test_screens import problems_of, use

pytestmark = pytest.mark.browser

NEEDS_KEY = {"error": {"code": "unauthorized", "message": "key", "param": None}}
STARTING = {"error": {"code": "not_ready", "message": "The service is starting", "param": None}}


def test_an_older_answer_is_faint_while_another_text_is_asked_about(open_page: OpenPage) -> None:
    page = open_page("tag")
    use(page, "tag")
    panel = page.locator(".panel").first
    expect(panel).to_have_css("opacity", "1")
    held = hold(page, "tag")
    page.get_by_label("Text").fill("Dan went home.")

    expect(panel).to_have_css("opacity", "0.4")
    expect(page.locator("details.call")).to_have_css("opacity", "0.4")
    held[0].continue_()
    expect(panel).to_have_css("opacity", "1")
    expect(page.get_by_role("status")).to_contain_text("tokens")


def test_a_late_answer_is_waited_for_in_words(open_page: OpenPage) -> None:
    page = open_page("tag")
    use(page, "tag")
    page.clock.install()
    held = hold(page, "tag")
    page.get_by_label("Text").fill("Dan went home.")
    page.clock.run_for(300)
    status = page.get_by_role("status")
    expect(status).to_be_empty()
    page.clock.run_for(1000)
    expect(status).to_have_text("Waiting for the answer …")
    page.clock.run_for(4500)
    expect(status).to_contain_text("The model may be starting")
    held[0].continue_()
    expect(status).to_contain_text("Answered in")


def test_of_a_question_that_another_text_ended_nothing_is_told(open_page: OpenPage) -> None:
    page = open_page("tag")
    use(page, "tag")
    page.clock.install()
    page.clock.pause_at(time.time() + 3600)  # it goes on only by what is run below
    hold(page, "tag")
    text, status = page.get_by_label("Text"), page.get_by_role("status")
    text.fill("Dan went home.")
    page.clock.run_for(1200)
    expect(status).to_have_text("Waiting for the answer …")
    for end in range(20):  # so fast that nothing is asked meanwhile
        text.fill(f"Dan went home {end}.")
        page.clock.run_for(250)

    expect(status).to_be_empty()


def test_what_was_written_is_older_than_a_text_that_is_typed_since(open_page: OpenPage) -> None:
    page = open_page("generate")
    use(page, "generate")
    note, written = page.get_by_text("What stands below is of the input before."), page.locator(".stream").first
    expect(note).to_be_hidden()
    page.get_by_role("button", name="Once upon a time").click()  # which puts another text there
    expect(note).to_be_visible()
    for older in (written, page.locator("details.call")):
        expect(older).to_have_css("outline-style", "dashed")
    assert problems_of(page) == []  # however long it stands there
    use(page, "generate")

    expect(note).to_be_hidden()
    expect(written).to_have_css("outline-style", "none")


def test_labels_are_clear_while_the_words_before_are_faint(open_page: OpenPage) -> None:
    page = open_page("classify")
    labels, words = page.locator(".columns > .panel").all()
    expect(words).to_contain_text("What speaks for")
    hold(page, "explain")
    page.get_by_label("Text").fill("The film was good.")

    expect(words).to_have_css("opacity", "0.4")
    expect(labels).to_have_css("opacity", "1")


def test_what_is_typed_into_stays_clear(open_page: OpenPage) -> None:
    page = open_page("translate")
    use(page, "translate")
    typed, translation = page.locator(".columns > .panel").all()
    hold(page, "translate")
    page.get_by_label("Text", exact=True).fill("Ann loves dogs.")

    expect(translation).to_have_css("opacity", "0.4")
    expect(typed).to_have_css("opacity", "1")


def test_who_types_while_a_key_is_needed_types_on(open_page: OpenPage) -> None:
    page = open_page("tag")
    text = page.get_by_label("Text")
    text.fill("Ann")
    text.press("End")
    page.route("**/live", lambda route: route.fulfill(status=401, json=NEEDS_KEY))
    expect(page.locator("form.key")).to_be_visible()
    page.keyboard.type(" went home.")

    expect(text).to_have_value("Ann went home.")
    expect(page.get_by_role("alert").filter(has_text="API key")).to_be_visible()


def test_the_time_in_which_a_key_is_typed_is_not_the_servers(open_page: OpenPage) -> None:
    page, asked = open_page("tag"), list[Route]()
    use(page, "tag")

    def refuse_once(route: Route) -> None:
        asked.append(route)
        if len(asked) == 1:
            route.fulfill(status=401, json=NEEDS_KEY)

    page.route("**/tag", refuse_once)
    page.get_by_label("Text").fill("Dan went home.")
    key = page.get_by_label("This server asks for an API key")
    expect(key).to_be_visible()
    page.evaluate(AN_HOUR_LATER)
    status = page.get_by_role("status")
    expect(status).to_have_text("Waiting for the API key …")
    key.fill("one")
    key.press("Enter")
    expect(status).not_to_contain_text("API key")  # though there is no answer yet
    asked[1].continue_()

    expect(status).to_contain_text("tokens")
    assert "3600." not in (status.text_content() or "")


@pytest.fixture
def cut_server() -> Iterator[str]:
    """Serve answers that break off; yields the address."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_MS / 1000)

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(head + b'Access-Control-Allow-Origin: *\r\n\r\n{"model":')

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_an_answer_that_is_cut_is_told_of_in_a_sentence(browser: Browser, address: str, cut_server: str) -> None:
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    there = f"{cut_server}/tag"
    redirect = "const own = fetch; window.fetch = (path, options) => path === 'tag' ? own(THERE) : own(path, options);"
    page.add_init_script(redirect.replace("THERE", f"'{there}'"))
    page.goto(f"{address}/#/tag")

    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    context.close()


def test_an_answer_of_something_else_is_told_of_in_a_sentence(open_page: OpenPage) -> None:
    page = open_page("tag")
    page.route("**/tag", lambda route: route.fulfill(body="<html>", content_type="text/html"))
    page.get_by_label("Text").fill("Dan went home.")

    expect(page.get_by_role("alert")).to_have_text("What answers is not this server")


def test_a_mistake_of_the_page_is_called_one_and_reaches_the_console(browser: Browser, address: str) -> None:
    page = browser.new_page()
    reported: list[str] = []
    page.on("pageerror", lambda error: reported.append(str(error)))
    page.route("**/tag", lambda route: route.fulfill(json={"model": "tag"}))  # in which the screen finds no results
    page.goto(f"{address}/#/tag")

    expect(page.get_by_role("alert")).to_contain_text("This page made a mistake")
    assert len(reported) == 1 and "undefined" in reported[0]
    page.close()


def test_a_page_that_was_opened_during_a_restart_shows_itself_after_it(browser: Browser, address: str) -> None:
    page, asked = browser.new_page(), list[Route]()
    page.set_default_timeout(PATIENCE_MS)

    def start(route: Route) -> None:
        asked.append(route)
        if len(asked) < 3:
            route.fulfill(status=503, json=STARTING, headers={"Retry-After": "1"})
        else:
            route.continue_()

    page.route("**/v1/models", start)
    page.goto(address)
    expect(page.get_by_role("alert")).to_have_text("The service is starting.")

    expect(page.get_by_role("heading", level=1)).to_have_text("Classify")
    page.close()


def test_a_server_without_models_says_so(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.route("**/v1/models", lambda route: route.fulfill(json={"object": "list", "data": []}))
    page.goto(address)

    expect(page.get_by_role("alert")).to_have_text("No models are served.")
    page.close()


def test_a_model_may_have_any_name(open_page: OpenPage) -> None:
    page = open_page("classify")
    models = page.evaluate("fetch('v1/models').then((response) => response.json())")
    models["data"] = [{**models["data"][0], "id": "constructor"}]
    page.route("**/v1/models", lambda route: route.fulfill(json=models))
    page.reload()

    expect(page.get_by_role("heading", level=1)).to_have_text("Classify")
    expect(page.get_by_label("Text")).not_to_be_empty()
    page.get_by_label("What the server is doing").locator("summary").click()
    expect(page.locator(".live li")).to_contain_text("idle")
