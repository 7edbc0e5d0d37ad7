"""What each screen shows of its requests as code: it is what was asked, and it runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.service.api.test_keys import entry, keys
from tests.service.page.conftest import OpenPage, serving
from tests.service.page.test_screens import SCREENS, use

pytestmark = pytest.mark.browser

OPENAI = "OpenAI’s client"
TURNED = "\u202e"  # a character that turns what is behind it
QUOTES = f"""[MASK] 'a' "b" \\ {{c}} 🙂{TURNED}"""
OF_OPENAI = ("embed", "generate", "chat")  # the screens that ask what OpenAI's protocol has, too


def shown(page: Page, form: str) -> str:
    """Return the newest request of a screen in a form."""
    panel = page.locator("details.call")
    panel.evaluate("each => each.open = true")
    panel.get_by_role("button", name=form, exact=True).click()
    return panel.locator("pre").text_content() or ""


def run(code: str) -> str:
    """Run a program, and return what it prints."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def letters(text: str | None) -> str:
    """Return a text without its white space, which the page draws."""
    return re.sub(r"[\s⏎]", "", text or "")


@pytest.mark.parametrize("screen", SCREENS)
def test_every_screen_shows_python_that_is_valid(open_page: OpenPage, screen: str) -> None:
    page = open_page(screen)
    # Short lines: OpenAI's protocol has no windows, in which texts are read that may be too long.
    text = QUOTES.replace(" ", "\n") if screen == "embed" else QUOTES
    with page.expect_response(lambda answer: TURNED in (answer.request.post_data or "")):
        page.locator("textarea").first.fill(text)
        if screen in {"generate", "chat", "summarize"}:
            use(page, screen)
    expect(page.get_by_role("status")).to_contain_text("tokens")
    for form in ("Python", *([OPENAI] if screen in OF_OPENAI else [])):
        compile(shown(page, form), form, "exec")

    has_client = page.locator("details.call").get_by_role("button", name=OPENAI).is_visible()
    assert has_client == (screen in OF_OPENAI)


def test_the_curl_that_is_shown_asks_what_the_page_asked(open_page: OpenPage, address: str) -> None:
    page = open_page("tag")
    page.locator("textarea").first.fill('It\'s Angela, "the" \\ one.')
    # The page may ask before all is typed.
    with page.expect_response(lambda answer: "one. x" in (answer.request.post_data or "")) as asked:
        page.locator("textarea").first.press("End")
        page.keyboard.type(" x")
    use(page, "tag")
    command, url, flag, content_type, data, body = shlex.split(shown(page, "curl").replace("\\\n", ""))

    assert (command, url, flag, data) == ("curl", f"{address}/tag", "-H", "-d")
    assert json.loads(body) == asked.value.request.post_data_json
    answer = httpx.post(url, content=body, headers=dict([content_type.split(": ")]))
    assert answer.json() == asked.value.json()
    assert json.loads(shown(page, "JSON")) == asked.value.json()


def test_a_body_that_is_too_long_for_a_command_is_saved_as_the_file_that_the_code_reads(
    open_page: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_page("tag")
    use(page, "tag")
    save = page.get_by_role("link", name="Save body.json")
    assert "body.json" not in shown(page, "curl")
    expect(save).to_be_hidden()
    page.get_by_label("Text").fill("Ann" * 45_000)
    expect(page.locator("pre")).to_contain_text("--data-binary @body.json")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    with page.expect_download() as saved:
        save.click()
    assert saved.value.suggested_filename == "body.json"
    saved.value.save_as(tmp_path / "body.json")
    monkeypatch.chdir(tmp_path)

    assert "results" in run(shown(page, "Python"))


def test_the_python_that_is_shown_gets_the_answer_of_the_page(open_page: OpenPage) -> None:
    page = open_page("embed")
    use(page, "embed")
    with page.expect_response("**/embed"):
        page.get_by_label("Texts, one a line").fill("A dog.\nA cat.")
    expect(page.locator(".dot")).to_have_count(2)
    answer = json.loads(shown(page, "JSON"))

    assert json.loads(run(shown(page, "Python")).replace("'", '"')) == answer
    vectors = [json.loads(line) for line in run(shown(page, OPENAI)).splitlines()]
    assert vectors == [pytest.approx(vector, abs=1e-6) for vector in answer["embeddings"]]


def test_openais_client_writes_what_the_page_wrote(open_page: OpenPage) -> None:
    page = open_page("generate")
    page.get_by_label("Most tokens").first.fill("12")
    use(page, "generate")
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()

    assert letters(run(shown(page, OPENAI))) == letters(page.locator(".stream").first.text_content())
    events = [line for line in run(shown(page, "Python")).splitlines() if line]
    assert events[-1] == "data: [DONE]"
    assert json.loads(events[0].removeprefix("data: "))["text"]


def test_openais_client_converses_as_the_page_does(open_page: OpenPage) -> None:
    page = open_page("chat")
    page.get_by_label("Most tokens").fill("5")
    use(page, "chat")

    assert run(shown(page, OPENAI)).strip()  # which is drawn at random


def test_a_text_with_brackets_is_shown_as_it_is_and_at_once(open_page: OpenPage) -> None:
    page = open_page("answer")
    numbers = ", ".join(["-1"] * 40)
    found = {"text": f"a [ 1,  2 ] b [ {numbers} c", "score": 0.9, "start": 0, "end": 1}
    answer = {"results": [{"answers": [found], "no_answer_score": 0.1}], "numbers": [[-1.5, 2e-9], [3]]}
    page.route("**/answer", lambda route: route.fulfill(json=answer))
    page.get_by_label("Question").fill("What?")
    expect(page.get_by_role("list", name="Answers, best first")).to_contain_text("a [ 1")
    text = shown(page, "JSON")

    assert json.loads(text) == answer
    assert "[-1.5, 2e-9]" in text


def test_the_code_says_where_its_key_comes_from_and_runs_with_it(
    open_page: OpenPage, packages: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "one")
    with serving(packages[1:2], **keys(tmp_path, entry("a", "one"))) as locked:
        page = open_page("embed", at=locked)
        page.get_by_label("This server asks for an API key").fill("one")
        page.keyboard.press("Enter")
        page.get_by_label("Texts, one a line").fill("A dog.")
        use(page, "embed")
        for form in ("curl", "Python", OPENAI):
            assert shown(page, form).startswith("# export API_KEY='your key'\n")
        assert "embeddings" in run(shown(page, "Python"))
        assert run(shown(page, OPENAI)).startswith("[")
        curl = [*shlex.split(shown(page, "curl").replace("\\\n", ""), comments=True)]
        assert curl[2:4] == ["-H", "Authorization: Bearer $API_KEY"]
        page.close()
