"""Each screen of the page, used as a person would use it, in a real browser."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.conftest import MakePackage, with_manifest
from tests.service.api.test_keys import entry, keys
from tests.service.page.conftest import OpenPage, Scheme, serving
from tests.service.page.test_streams import change_requests

pytestmark = pytest.mark.browser

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
SCREENS = [
    "classify",
    "embed",
    "words",
    "rerank",
    "tag",
    "answer",
    "fill",
    "generate",
    "chat",
    "summarize",
    "translate",
    "inside",
]
HOSTILE = '<script>window.broken=1</script><img src=x onerror="window.broken=1"> שלום مرحبا 🙂👩‍👩‍👧 \u202eevil'


def use(page: Page, screen: str) -> None:
    """Wait for what a screen shows of itself, or press its button, and see it to the end."""
    if screen == "generate":
        page.get_by_role("button", name="Generate", exact=True).click()
    if screen == "chat":
        page.get_by_role("button", name="Send").click()
    if screen == "summarize":
        page.get_by_role("button", name="Summarize").click()
    expect(page.get_by_role("status")).to_contain_text("tokens")


def problems_of(page: Page) -> list[str]:
    page.evaluate(AXE)
    found = page.evaluate("axe.run()")["violations"]
    return [f"{each['id']}: {node['html'][:200]} {node['failureSummary']}" for each in found for node in each["nodes"]]


def test_there_is_a_screen_for_everything_that_is_loaded(open_page: OpenPage) -> None:
    page = open_page("")

    links = page.get_by_role("navigation").get_by_role("link")
    expect(links).to_have_text([screen.capitalize() for screen in SCREENS])
    links.filter(has_text="Embed").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Embed")
    expect(page).to_have_title("Embed · Trifold")


def test_the_address_names_the_screen_and_the_model_that_was_chosen(open_page: OpenPage) -> None:
    page = open_page("classify?model=entailment")
    model = page.get_by_label("Model")
    expect(model).to_have_value("entailment")
    expect(page.get_by_label("Text")).to_have_value(re.compile("goalkeeper"))  # one of the labels is sport
    model.select_option("fashion")
    expect(page).to_have_url(re.compile(r"#/classify\?model=fashion$"))
    page.reload()
    expect(model).to_have_value("fashion")
    model.select_option("sentiment")
    page.get_by_role("link", name="Inside").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Inside")
    expect(model).to_have_value("sentiment")  # the last that was chosen, as it fits
    page.evaluate("location.hash = '#/nothing'")

    expect(page).to_have_url(re.compile("#/classify"))
    model.select_option("fashion")
    before = page.evaluate("history.length")
    page.get_by_role("link", name="Classify").click()
    assert page.evaluate("history.length") == before


def test_a_model_that_is_not_here_is_told_of(open_page: OpenPage) -> None:
    page = open_page("classify?model=gone")
    alert = page.get_by_role("alert")
    expect(alert).to_have_text("There is no model gone here; sentiment is shown.")
    page.get_by_label("Model").select_option("entailment")

    expect(alert).to_be_hidden()


def test_going_back_keeps_the_conversation_and_a_new_address_has_its_model(open_page: OpenPage) -> None:
    page = open_page("generate")
    model, written = page.get_by_label("Model"), page.locator(".stream").first
    model.select_option("stories")
    page.get_by_role("link", name="Tag").click()
    page.get_by_role("link", name="Generate").click()
    model.select_option("chat")
    use(page, "generate")
    text = written.text_content() or ""
    for _ in range(2):
        page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Generate")

    expect(page).to_have_url(re.compile(r"#/generate(\?model=chat)?$"))
    expect(written).to_have_text(text)
    page.evaluate("location.hash = '#/generate?model=stories'")
    expect(model).to_have_value("stories")


def test_a_screen_that_no_model_fits_says_so(open_page: OpenPage, packages: list[Path]) -> None:
    with serving(packages[:1]) as address:
        page = open_page("fill", at=address)
        expect(page.get_by_role("heading", level=1)).to_have_text("Fill")
        expect(page.get_by_role("alert")).to_contain_text("No model here can fill in words.")
        page.close()


@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_is_accessible(open_page: OpenPage, screen: str) -> None:
    page = open_page(screen)
    use(page, screen)
    for details in page.locator("details").all():
        details.evaluate("each => each.open = true")

    schemes: list[Scheme] = ["light", "dark"]
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        assert problems_of(page) == [], scheme


@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_fits_a_telephone(open_page: OpenPage, screen: str) -> None:
    page = open_page(screen, width=390)
    use(page, screen)

    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("screen", SCREENS)
def test_a_hostile_text_is_only_a_text(open_page: OpenPage, screen: str) -> None:
    page = open_page(screen)
    starts = {"generate": "Generate", "chat": "Send"}
    if screen == "chat":
        page.get_by_label("Most tokens").fill("5")
    hostile = HOSTILE[:75] if screen == "chat" else HOSTILE  # as much as its model takes
    for text in (hostile, (HOSTILE * 200)[:10_000]):
        page.locator("textarea").first.fill(text)
        if screen in starts:
            page.get_by_role("button", name=starts[screen], exact=True).click()
        page.wait_for_timeout(700)
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        if screen == "chat":
            expect(page.locator(".bubble.user")).to_have_text(hostile)  # the long one is refused, and taken back

        assert page.evaluate("window.broken") is None
        assert page.locator("main script, main img[src=x]").count() == 0
    if screen == "chat":
        page.get_by_role("button", name="New conversation").click()
    page.locator("textarea").first.fill("The dog was [MASK].")
    use(page, screen)
    expect(page.get_by_role("alert")).to_be_hidden()


def test_words_are_coloured_by_what_they_add_to_the_label_that_is_chosen(open_page: OpenPage) -> None:
    page = open_page("classify")
    page.get_by_label("Text").fill("The film was good.")
    expect(page.locator(".word")).not_to_have_count(0)

    expect(page.get_by_text("Choose a label to see what speaks for it.")).to_be_visible()
    labels = page.get_by_role("list", name="Labels").get_by_role("button")
    name = labels.nth(1).text_content()
    labels.nth(1).click()
    expect(page.get_by_role("heading", name=f"What speaks for “{name}”")).to_be_visible()


# What a browser does when a file is dropped on an element or pasted.
GIVE = """(element, [type, base64]) => {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const given = new DataTransfer();
    given.items.add(new File([bytes], "grey.png", { type: "image/png" }));
    const about = { bubbles: true, cancelable: true };
    element.dispatchEvent(
        type === "drop"
            ? new DragEvent(type, { dataTransfer: given, ...about })
            : new ClipboardEvent(type, { clipboardData: given, ...about }),
    );
}"""


@pytest.mark.parametrize("way", ["drop", "paste", "choose"])
def test_a_picture_can_be_dropped_pasted_or_chosen(open_page: OpenPage, tmp_path: Path, way: str) -> None:
    Image.new("L", (28, 28), 200).save(tmp_path / "grey.png")
    picture = b64encode((tmp_path / "grey.png").read_bytes()).decode()
    page = open_page("classify")
    page.get_by_label("Model").select_option("fashion")
    expect(page.get_by_role("list", name="Labels").get_by_role("listitem")).to_have_count(10)
    with page.expect_request("**/classify") as asked:
        if way == "choose":
            page.get_by_label("Drop a picture here").set_input_files(tmp_path / "grey.png")
        else:
            page.locator(".drop").evaluate(GIVE, [way, picture])

    assert (asked.value.post_data_json or {})["input"] == f"data:image/png;base64,{picture}"


def test_near_texts_stand_on_a_map_and_in_a_matrix(open_page: OpenPage) -> None:
    page = open_page("embed")
    page.get_by_label("Texts, one a line").fill("The dog was good.\nThe dog was good.\nThe film was bad.")

    expect(page.locator(".dot")).to_have_count(3)
    expect(page.locator(".matrix tbody td").nth(1)).to_have_text("1.00")
    places = [page.locator(".dot").nth(number).get_attribute("transform") for number in range(3)]
    assert places[0] == places[1] != places[2]


def test_a_token_tells_its_alternatives_and_a_seed_its_text(open_page: OpenPage) -> None:
    page = open_page("generate")
    start = page.get_by_role("button", name="Generate", exact=True)
    start.click()
    expect(page.get_by_role("status")).to_contain_text("tokens")
    first = page.locator(".stream").first.text_content()
    page.locator(".token:visible").nth(3).hover()
    expect(page.get_by_role("list", name="Alternatives").get_by_role("listitem").first).to_be_visible()
    with page.expect_response("**/generate"):
        start.click()
    expect(page.get_by_role("status")).to_contain_text("tokens")

    expect(page.locator(".stream").first).to_have_text(first or "")


def test_two_settings_stand_side_by_side(open_page: OpenPage) -> None:
    page = open_page("generate")
    page.get_by_label("Compare two settings").check()
    page.get_by_role("button", name="Generate", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("tokens")

    a, b = (page.get_by_role("region", name=f"Setting {name}").locator(".stream").text_content() for name in "AB")
    assert a
    assert b
    assert a != b
    page.get_by_label("Compare two settings").uncheck()
    page.get_by_label("Prompt").fill("Once")
    with page.expect_response("**/generate"):
        page.get_by_role("button", name="Generate", exact=True).click()
    page.get_by_label("Compare two settings").check()
    expect(page.get_by_role("region", name="Setting B").locator(".stream")).to_be_empty()


def test_a_conversation_goes_on(open_page: OpenPage) -> None:
    page = open_page("chat")
    page.get_by_label("Most tokens").fill("5")
    change_requests(page, seed=1, min_tokens=5, top_k=1)  # of which the last one can be seen
    for said in ("Who is Dan?", "And who is Ann?"):
        page.get_by_label("Message").fill(said)
        page.get_by_label("Message").press("Enter")
        expect(page.get_by_role("log")).to_contain_text(said)
        expect(page.get_by_role("status")).to_contain_text("tokens")
        expect(page.get_by_role("button", name="Stop")).to_be_disabled()

    expect(page.locator(".bubble")).to_have_count(4)
    for bubble in page.locator(".bubble.model").all():  # an older answer's tokens tell their alternatives, too
        bubble.locator(".token").last.hover()
        expect(page.locator(".others .bars").first).to_be_visible()
        page.locator(".others").first.evaluate("each => each.replaceChildren()")


def test_what_is_copied_of_an_answer_is_what_was_written(open_page: OpenPage) -> None:
    page = open_page("generate")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    usage = {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    events = [{"index": 0, "text": "A dog.\n"}, {"index": 0, "text": "A ball."}, usage]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    page.route("**/generate", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.get_by_role("button", name="Generate", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("tokens")
    page.locator(".stream").first.evaluate("each => getSelection().selectAllChildren(each)")
    page.keyboard.press("Control+C")

    expect(page.locator(".break")).to_have_count(1)  # which is drawn as a sign
    assert page.evaluate("navigator.clipboard.readText()") == "A dog.\nA ball."


def test_words_of_two_texts_are_shown_with_those_that_they_share(open_page: OpenPage) -> None:
    page = open_page("words")
    page.get_by_label("Text", exact=True).fill("red dog")
    page.get_by_label("Another text").fill("good dog")
    expect(page.locator(".panel h2")).to_have_text(["Words of text 1", "Words of text 2", "In common"])
    expect(page.get_by_role("list", name="Words of text 1").get_by_role("listitem").first).to_be_visible()

    page.get_by_label("Another text").fill("dog " * 10_000)
    expect(page.get_by_label("Another text")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("alert")).to_have_text(re.compile("^Another text: .* Make it shorter"))
    page.get_by_label("Another text").fill("")
    expect(page.locator(".panel h2")).to_have_text(["Words of text 1"])


def test_words_chosen_for_several_masks_stand_in_the_text_together(open_page: OpenPage) -> None:
    page = open_page("fill")
    text = page.locator("textarea").first
    text.fill("The [MASK] was [MASK].")
    lists = page.get_by_role("list", name="Candidates for missing word")
    expect(lists).to_have_count(2)
    for place in (0, 1):
        lists.nth(place).get_by_role("button").first.click()

    assert "[MASK]" not in text.input_value() and re.match(r"The ?\S+ was ?\S+\.$", text.input_value())


def test_the_navigation_is_skipped_by_the_keyboard(open_page: OpenPage) -> None:
    page = open_page("classify")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("Tab")

    expect(page.get_by_label("Model")).to_be_focused()


def test_scores_that_are_no_shares_are_shown_as_numbers(
    open_page: OpenPage, make_package: MakePackage, tmp_path: Path
) -> None:
    raw = with_manifest(make_package("sentiment"), tmp_path / "raw", activation="none")
    with serving([raw]) as address:
        page = open_page("classify", at=address)
        numbers = page.get_by_label("Labels with their scores").locator(".number")
        expect(numbers).to_have_text([re.compile(r"^-?\d+\.\d\d$")] * 2)
        page.close()


def test_a_key_is_asked_for_once_and_kept_in_the_tab(open_page: OpenPage, packages: list[Path], tmp_path: Path) -> None:
    with serving(packages[:1], **keys(tmp_path, entry("a", "one"))) as locked:
        page = open_page("", at=locked)
        page.get_by_label("This server asks for an API key").fill("one")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Classify")
        page.reload()
        expect(page.get_by_role("heading", level=1)).to_have_text("Classify")

        assert page.evaluate("localStorage.length") == 0
        page.close()
