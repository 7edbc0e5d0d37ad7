"""The page for people: who gets it, under which policy, and how large it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.api.page import FOLDER, page_files, wants_html
from tests.service.api.conftest import Client, OpenClient
from tests.service.api.test_keys import entry, keys

OF_A_BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
MAX_BYTES = 200_000


async def test_a_browser_gets_the_page_and_a_program_what_it_always_got(client: Client) -> None:
    page = await client.get("/", headers=OF_A_BROWSER)
    told = await client.get("/")

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>")
    assert told.json().keys() == {"name", "docs", "models"}
    assert page.headers["vary"] == told.headers["vary"] == "Accept"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (OF_A_BROWSER["Accept"], True),
        ("TEXT/HTML", True),
        ("text/html;q=0.5", True),
        ("text/html;q=0", False),
        ("text/html;q=0.0, */*", False),
        ("*/*", False),
        ("application/json", False),
        ("", False),
    ],
)
def test_html_is_wanted_by_whoever_names_it(accept: str, wanted: bool) -> None:
    assert wants_html(accept) is wanted


async def test_every_file_comes_under_a_policy_that_lets_nothing_else_in_or_out(client: Client) -> None:
    addresses = ["/", *(f"/page/{name}" for name in page_files())]
    for address in addresses:
        response = await client.get(address, headers=OF_A_BROWSER)
        assert response.status_code == 200, address
        policy = dict(
            part.strip().partition(" ")[::2] for part in response.headers["content-security-policy"].split(";")
        )
        assert policy == {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "img-src": "'self' data:",
            "connect-src": "'self'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        assert response.headers["x-content-type-options"] == "nosniff"


async def test_what_a_browser_has_is_not_sent_again(client: Client) -> None:
    first = await client.get("/page/app.js")
    again = await client.get("/page/app.js", headers={"If-None-Match": first.headers["etag"]})
    other = await client.get("/page/app.js", headers={"If-None-Match": '"another"'})

    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert other.content == first.content


async def test_the_page_asks_for_files_that_a_browser_keeps_until_they_change(client: Client) -> None:
    page = await client.get("/", headers=OF_A_BROWSER)
    asked = re.findall(r'="(page/[^"]+)"', page.text)
    files = [await client.get(f"/{address}") for address in asked]

    assert page.headers["cache-control"] == "no-cache"
    assert len(asked) > 5 and len({address.split("/")[1] for address in asked}) == 1
    assert {file.status_code for file in files} == {200}
    assert {file.headers["cache-control"] for file in files} == {"public, max-age=31536000, immutable"}


async def test_a_page_of_before_gets_todays_files_and_keeps_none(client: Client) -> None:
    today = await client.get("/page/app.js")
    of_before = await client.get(f"/page/{'0' * 16}/app.js")

    assert of_before.content == today.content
    assert of_before.headers["cache-control"] == today.headers["cache-control"] == "no-cache"


def test_what_the_first_screen_needs_is_asked_for_at_once() -> None:
    needed, found = ["app.js", "screens/classify.js"], set[str]()
    while needed:
        name = needed.pop()
        if name not in found:
            found.add(name)
            imported = re.findall(r'^import .* from "([^"]+)"', (FOLDER / name).read_text(), re.MULTILINE)
            needed += [
                (FOLDER / name).parent.joinpath(each).resolve().relative_to(FOLDER).as_posix() for each in imported
            ]

    asked = re.findall(r'(?:modulepreload" href|src)="page/([^"]+\.js)"', (FOLDER / "index.html").read_text())
    assert sorted(asked) == sorted(found)


@pytest.mark.parametrize("address", ["/page/", "/page/nothing.js", "/page/../app.py", "/page/%2e%2e/keys.py", "/page"])
async def test_there_is_nothing_but_its_files(client: Client, address: str) -> None:
    assert (await client.get(address, headers=OF_A_BROWSER)).status_code == 404


async def test_the_page_needs_no_key_and_says_nothing_of_models(open_client: OpenClient, tmp_path: Path) -> None:
    async with open_client("stories", settings=keys(tmp_path, entry("a", "one"))) as client:
        page = await client.get("/", headers=OF_A_BROWSER)
        others = [(await client.get(path, headers=OF_A_BROWSER)).status_code for path in ("/v1/models", "/docs")]

    assert page.status_code == 200
    assert "stories" not in page.text
    assert others == [401, 401]


async def test_a_models_own_address_has_no_page(client: Client) -> None:
    for path in ("/models/stories", "/models/stories/", "/models/stories/page/app.js"):
        response = await client.get(path, headers=OF_A_BROWSER)
        assert "text/html" not in response.headers["content-type"], path


def test_it_is_small() -> None:
    assert sum(map(len, page_files().values())) < MAX_BYTES


def test_no_file_names_an_address_elsewhere() -> None:
    namespaces = {"http://www.w3.org/2000/svg"}
    for name, content in page_files().items():
        addresses = set(re.findall(r"(?:https?:)?//[\w-]+\.[\w./-]+", content.decode()))
        assert addresses <= namespaces, name


def test_every_module_that_is_imported_is_there() -> None:
    for name, content in page_files().items():
        for target in re.findall(r'from "(\.[^"]+)"', content.decode()):
            assert (FOLDER / name).parent.joinpath(target).resolve().is_file(), (name, target)


def test_no_file_makes_html_of_text() -> None:
    for name, content in page_files().items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", content.decode()), name
