"""What the page does where something goes wrong: it says so, and what is shown is true."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.service.api.test_keys import entry, keys
from tests.service.page.conftest import OpenPage, hold, serving, wait_until
from tests.service.page.test_screens import use

pytestmark = pytest.mark.browser


def go_to(page: Page, screen: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=screen).click()


def test_a_wrong_key_is_called_wrong_and_another_is_asked_for(
    open_page: OpenPage, packages: list[Path], tmp_path: Path
) -> None:
    with serving(packages[:1], **keys(tmp_path, entry("a", "one"))) as locked:
        page = open_page("", at=locked)
        key = page.get_by_label("This server asks for an API key")
        expect(key).to_be_focused()
        expect(page.get_by_text("Asking which models")).to_be_hidden()
        key.fill("two")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert").get_by_label("The server does not know this key")).to_be_focused()
        expect(page.get_by_role("link", name="Metrics")).to_be_hidden()
        page.keyboard.type("one")
        page.keyboard.press("Enter")

        expect(page.get_by_role("heading", level=1)).to_have_text("Classify")
        expect(page.get_by_role("link", name="Metrics")).to_be_hidden()  # it would open without the key
        page.close()


def test_a_stream_that_is_refused_is_the_newest_call(open_page: OpenPage) -> None:
    page = open_page("generate")
    page.get_by_role("button", name="Generate").click()
    panel = page.locator(".call")
    panel.get_by_text("The same from your own program").click()
    expect(panel).to_contain_text("max_tokens")
    prompt = page.get_by_label("Prompt")
    prompt.fill("Once " * 2000)
    page.get_by_role("button", name="Generate").click()

    expect(page.get_by_role("alert")).to_have_text(
        re.compile(r"^Prompt: prompt has \d+ characters; .* Make it shorter\.$")
    )
    expect(prompt).to_have_attribute("aria-invalid", "true")
    expect(panel).to_contain_text("Once Once")


def test_a_number_that_is_out_of_bounds_is_refused_beside_the_button_and_not_asked_for(open_page: OpenPage) -> None:
    page = open_page("generate", width=390)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.method == "POST" else None)
    page.get_by_label("Top p").first.fill("0")
    start = page.get_by_role("button", name="Generate", exact=True)
    start.click()
    alert = page.get_by_role("alert")
    expect(alert).to_have_text("Top p: choose a number above 0 and at most 1")
    expect(alert).to_be_in_viewport(ratio=1)
    expect(page.get_by_label("Top p").first).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Top p").first.fill("0.001")
    page.get_by_label("Seed").first.fill(str(2**53 + 1))  # which a JavaScript number would round
    start.click()
    expect(alert).to_have_text(f"Seed: choose a whole number from 0 to {2**53 - 1}")
    assert asked == []
    page.get_by_label("Seed").first.fill("1")
    start.click()

    expect(page.get_by_role("status")).to_contain_text("tokens")
    expect(page.locator("[aria-invalid]")).to_have_count(0)


def test_a_screen_that_cannot_be_loaded_is_told_of_and_others_open(open_page: OpenPage) -> None:
    page = open_page("classify")
    page.route("**/screens/embed.js", lambda route: route.abort())
    go_to(page, "Embed")
    expect(page.get_by_role("alert")).to_contain_text("The screen Embed could not be loaded")
    go_to(page, "Tag")

    expect(page.get_by_role("heading", level=1)).to_have_text("Tag")


@pytest.mark.parametrize("screen", ["classify", "rerank", "tag", "answer"])
def test_of_a_text_that_was_emptied_nothing_stays(open_page: OpenPage, screen: str) -> None:
    page = open_page(screen)
    results = page.locator(".panel").first
    expect(results).not_to_be_empty()
    page.locator("textarea").first.fill("")

    expect(results).to_be_empty()
    expect(page.get_by_role("status")).to_be_empty()


def test_a_text_longer_than_a_model_reads_at_once_is_read_in_windows(open_page: OpenPage) -> None:
    page = open_page("classify")
    in_windows = '"windows":true'
    with page.expect_response(lambda answer: in_windows in (answer.request.post_data or "")) as asked:
        page.get_by_label("Text").fill("The film was good. " * 30)

    assert asked.value.status == 200, asked.value.text()
    expect(page.get_by_role("list", name="Labels")).to_be_visible()
    expect(page.get_by_text("Make it shorter to see what speaks for a label")).to_be_visible()


def test_texts_beyond_those_that_are_drawn_are_told_of(open_page: OpenPage) -> None:
    page = open_page("embed")
    page.get_by_label("Texts, one a line").fill("\n".join(f"Text {number}." for number in range(41)))

    expect(page.get_by_role("heading", name="Map of nearness")).to_have_text(
        "Map of nearness, of the first 40 of 41 texts"
    )


def test_a_picture_that_is_too_large_for_a_body_is_made_smaller(open_page: OpenPage, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (900, 1200, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "photo.png")
    assert (tmp_path / "photo.png").stat().st_size > 2 * 1024 * 1024
    page = open_page("classify")
    page.get_by_label("Model").select_option("fashion")
    expect(page.get_by_role("status")).to_contain_text("Answered in")
    with page.expect_response("**/classify") as answered:
        page.get_by_label("Drop a picture here").set_input_files(tmp_path / "photo.png")

    assert answered.value.status == 200
    panel = page.locator("details.call")
    panel.evaluate("each => each.open = true")
    expect(panel.locator("pre")).to_contain_text("--data-binary @body.json")
    assert len(panel.locator("pre").text_content() or "") < 2000
    panel.get_by_role("button", name="Python", exact=True).click()
    code = panel.locator("pre").text_content() or ""
    assert 'json.load(open("body.json", encoding="utf-8"))' in code and len(code) < 2000
    compile(code, "shown", "exec")


def test_a_file_that_is_no_picture_is_refused_in_words(open_page: OpenPage, tmp_path: Path) -> None:
    for name in ("notes.txt", "broken.png"):
        (tmp_path / name).write_text("no picture")
    page = open_page("classify?model=fashion")
    picture = page.get_by_alt_text("The picture that is classified")
    before = picture.get_attribute("src")
    for name in ("notes.txt", "broken.png"):
        page.get_by_label("Drop a picture here").set_input_files(tmp_path / name)
        expect(page.get_by_role("alert")).to_contain_text("This file is no picture")
        assert picture.get_attribute("src") == before
    page.get_by_label("Model").select_option("sentiment")
    page.get_by_label("Model").select_option("fashion")
    expect(picture).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_where_nothing_can_be_copied_the_text_is_selected(open_page: OpenPage) -> None:
    page = open_page("classify")
    expect(page.get_by_role("heading", name="What speaks for")).to_be_visible()  # the last that is shown of it
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")  # as without https
    page.locator("details.call summary").click()
    page.get_by_role("button", name="Copy").click()

    expect(page.get_by_role("button", name="Selected")).to_be_visible()
    assert page.evaluate("getSelection().toString()").startswith("curl ")


def test_maps_that_came_while_another_screen_was_shown_have_its_colours(open_page: OpenPage) -> None:
    page = open_page("tag", scheme="dark")  # which asks for no explanation
    held = hold(page, "explain")
    with page.expect_request("**/explain"):
        go_to(page, "Inside")
    go_to(page, "Tag")
    with page.expect_response("**/explain"):
        held[0].continue_()
    expect(page.get_by_role("heading", level=1)).to_have_text("Tag")
    go_to(page, "Inside")

    wait_until(
        page,
        """() => {
            const canvas = document.querySelector(".thumb");
            if (canvas === null) return false;
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const drawn = Array.from({ length: data.length / 4 }, (_, at) => at * 4).find((at) => data[at + 3] > 4);
            return drawn !== undefined && Math.max(...data.slice(drawn, drawn + 3)) > 0;
        }""",
    )


def test_of_a_text_that_is_refused_no_older_results_stay(open_page: OpenPage) -> None:
    page = open_page("fill")
    candidates = page.get_by_role("list", name="Candidates for missing word 1")
    expect(candidates).to_be_visible()
    page.get_by_label("Text with [MASK]").fill("Nothing is missing here.")

    expect(page.get_by_role("alert")).to_contain_text("without [MASK]")
    expect(candidates).to_have_count(0)


def test_a_candidate_replaces_no_text_that_was_typed_since(open_page: OpenPage) -> None:
    page = open_page("fill")
    candidates = page.get_by_role("list", name="Candidates for missing word 1").get_by_role("button")
    expect(candidates.first).to_be_visible()
    text = page.get_by_label("Text with [MASK]")
    typed = "Another text with a [MASK]."
    page.evaluate("typed => { document.querySelector('textarea').value = typed; }", typed)  # before it is asked about
    candidates.first.click()

    expect(text).to_have_value(typed)


def test_another_model_writes_on_nothing_of_the_one_before(open_page: OpenPage) -> None:
    page = open_page("generate")
    page.get_by_role("button", name="Generate", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("tokens")
    page.get_by_label("Model").select_option("stories")

    expect(page.locator(".token")).to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    expect(page.get_by_role("status")).to_be_empty()
    expect(page.locator("details.call")).to_be_hidden()


def test_a_browser_that_keeps_nothing_of_the_site_shows_the_page(
    open_page: OpenPage, packages: list[Path], tmp_path: Path
) -> None:
    blocked = (
        "Object.defineProperty(window, 'sessionStorage', { get() { throw new DOMException('no', 'SecurityError'); } })"
    )
    with serving(packages[:1], **keys(tmp_path, entry("a", "one"))) as locked:
        page = open_page("", at=locked)
        page.context.add_init_script(blocked)
        page.reload()
        page.get_by_label("This server asks for an API key").fill("one")
        page.get_by_role("button", name="Use it in this tab").click()

        expect(page.get_by_role("heading", level=1)).to_have_text("Classify")
        page.close()


def test_a_server_that_is_gone_is_told_of_in_a_sentence(open_page: OpenPage) -> None:
    page = open_page("tag")
    expect(page.get_by_role("status")).to_contain_text("tokens")
    page.route("**/tag", lambda route: route.abort("connectionrefused"))
    page.get_by_label("Text").fill("Dan went home.")

    expect(page.get_by_role("alert")).to_have_text(re.compile("The server does not answer; it may be restarting"))


def test_a_stream_that_ends_before_its_end_is_no_answer(open_page: OpenPage) -> None:
    page = open_page("generate")
    begun = 'data: {"index":0,"text":" Once"}\n\n'
    page.route("**/generate", lambda route: route.fulfill(body=begun, content_type="text/event-stream"))
    page.get_by_role("button", name="Generate", exact=True).click()

    expect(page.get_by_role("alert")).to_have_text("The answer broke off before its end")


def test_where_the_likeliest_is_no_answer_nothing_is_marked(open_page: OpenPage) -> None:
    page = open_page("answer")
    found = {"answers": [{"text": "Hamburg", "score": 0.2, "start": 26, "end": 33}], "no_answer_score": 0.7}
    answer = {"model": "answers", "results": [found], "usage": {"prompt_tokens": 9, "completion_tokens": 0}}
    page.route("**/answer", lambda route: route.fulfill(json=answer))
    page.get_by_label("Question").fill("Who sings?")

    expect(page.get_by_role("list", name="Answers, best first").get_by_role("listitem").first).to_contain_text(
        "No answer in this text"
    )
    expect(page.locator("mark")).to_have_count(0)


def test_what_was_not_answered_is_asked_again_by_a_button(open_page: OpenPage) -> None:
    page = open_page("tag")
    use(page, "tag")
    page.route("**/tag", lambda route: route.abort("connectionrefused"))
    page.get_by_label("Text").fill("Dan went home.")
    again = page.get_by_role("button", name="Try again")
    expect(again).to_be_visible()
    with page.expect_request("**/tag"):
        again.click()
    expect(again).to_be_focused()  # as long as it is there
    page.unroute("**/tag")
    page.keyboard.press("Enter")

    expect(page.get_by_role("status")).to_contain_text("tokens")
    expect(again).to_be_hidden()
    expect(page.get_by_role("status")).to_be_focused()


def test_what_is_wrong_is_not_asked_again(open_page: OpenPage) -> None:
    page = open_page("fill")
    page.get_by_label("Text with [MASK]").fill("Nothing is missing here.")

    expect(page.get_by_role("alert")).to_contain_text("without [MASK]")
    expect(page.get_by_role("button", name="Try again")).to_be_hidden()


def test_an_answer_that_broke_off_in_a_conversation_is_not_asked_again_without_its_message(open_page: OpenPage) -> None:
    page = open_page("chat")
    begun = 'data: {"index":0,"text":" Once"}\n\n'
    page.route("**/generate", lambda route: route.fulfill(body=begun, content_type="text/event-stream"))
    page.get_by_role("button", name="Send").click()

    expect(page.get_by_role("alert")).to_have_text("The answer broke off before its end")
    expect(page.get_by_role("button", name="Try again")).to_be_hidden()
