from __future__ import annotations

from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.tasks.markup import SCANNED, parts_of, pieces, text_of
from service.tasks.sentences import TooManySentences

PAGE = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")


def package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


# Pages of others: of matplotlib's figures, ray's dashboard, torch's model viewer.
PAGES = [
    PAGE,
    *(path.read_text(encoding="utf-8") for path in sorted(package("matplotlib").glob("backends/web_backend/*.html"))),
    (package("torch") / "utils" / "model_dump" / "skeleton.html").read_text(encoding="utf-8"),
]


def texts(page: str) -> list[str]:
    return [piece for piece, is_text in pieces(page) if is_text]


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('<p class="green">Hello!</p>', ["Hello!"]),
        ("<p>One <b>two</b> three</p>", ["One ", "two", " three"]),
        ("a < b and <3, x</p>", ["a < b and <3, x"]),
        ("<!-- <p>no</p> -->yes<!-->yes<!x>yes</ x>yes", ["yes"] * 4),
        ("<script>if (a<b) x('</p>')</script><STYLE>p{}</STYLE >yes", ["yes"]),
        ("<code>no <code>no</code> no</code>yes", ["yes"]),
        ('<div translate="no">no <div>no</div></div>yes<br class="x notranslate">yes', ["yes", "yes"]),
        ("<a title='a > b' href=x>yes</a><a title=\"it's\">yes</a><a don't>it's</a>", ["yes", "yes", "it's"]),
        ("<p>12 | &copy; 34</p>", []),
        ("<td>½</td><td>1&frac14;</td><sup>²</sup>", []),
        ("yes<a href='never closed", ["yes"]),
        ("yes<!-- never closed", ["yes"]),
        ("yes<script>never closed", ["yes"]),
    ],
)
def test_only_what_is_read_is_text(page: str, found: list[str]) -> None:
    assert texts(page) == found


def test_a_line_break_is_a_space_and_ends_no_sentence() -> None:
    page = "<p>\n  The little dog \n   was\rgood.\r\nYes.\n</p><pre>One.\nTwo.</pre>"

    assert parts_of(page, "en", 9) == [
        "",
        "<p>\n  ",
        "The little dog was good.",
        " ",
        "Yes.",
        "\n</p><pre>One.\nTwo.</pre>",
        "",
    ]


def test_a_number_of_no_character_stays_as_it_is() -> None:
    number = "&#" + "9" * 5000 + ";"

    assert parts_of(f"<p>R&amp;D {number} &#228;&#000000065;</p>", "en", 9)[2] == f"R&D {number} äA"
    assert text_of(f"a {number}", 9) == f"a {number}"[:9]


@pytest.mark.parametrize("page", PAGES)
def test_the_pieces_joined_are_the_page(page: str) -> None:
    assert "".join(piece for piece, _ in pieces(page)) == page and len(page) > 100


@given(st.text(alphabet="<>/!-ab='\" &;\nscript", max_size=80))
@settings(max_examples=500)
def test_whatever_comes_is_passed_over_once(page: str) -> None:
    assert "".join(piece for piece, _ in pieces(page)) == page
    parts = parts_of(page, "en", 1000)
    assert len(parts) % 2 == 1


class Tags(HTMLParser):
    """The tags and comments of a page, as Python's own parser finds them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(f"<{tag} {attrs}>")

    def handle_endtag(self, tag: str) -> None:
        self.found.append(f"</{tag}>")

    def handle_comment(self, data: str) -> None:
        self.found.append(data)


@pytest.mark.parametrize("page", PAGES)
def test_tags_survive_whatever_the_sentences_become(page: str) -> None:
    parts = parts_of(page, "en", 1000)
    parts[::2] = ["x &lt; y" if part else "" for part in parts[::2]]

    assert Tags("".join(parts)).found == Tags(page).found


@pytest.mark.parametrize(
    ("page", "read"),
    [
        ("<ul><li translate=no>Trifold<li>Good day</ul><p>Thanks", ["Good day", "Thanks"]),
        ("<ul><li translate=no>a<ul><li>b<li>c</ul>d<li>Good day</ul>", ["Good day"]),
        ("<p class=notranslate>Brand<p>Good day", ["Good day"]),
        ("<p class=notranslate>Brand<div>Good day</div>", ["Good day"]),
        ("<div><p translate=no>a <b>c</div>Good day", ["Good day"]),
        ("<tr><td translate=no>x<td>Good day<tr translate=no><td>y<tr><td>Thanks", ["Good day", "Thanks"]),
        ("<td translate=no>x<table><tr><td>y</table>z</td><td>Good day", ["Good day"]),
        ("<li translate=no><p>a</p>b</li>Good day", ["Good day"]),
        ("<span translate=no>a<p>b</span>Good day", ["Good day"]),
        ("<p translate=no>Choose <select><option>a</select> now</p>Good day", ["Good day"]),
        ("<p translate=no><ruby>a<rt>b</ruby><textarea><p></textarea><code><li></code>c</p>Good day", ["Good day"]),
        ("<li translate=no><button><li>a</button>b<li>Good day", ["Good day"]),
        ("<p translate=no>a<summary>Good day", ["Good day"]),
        ("<!-- a > b --!>Good day<!-- c -->", ["Good day"]),
        ("<!--!> hidden -->Good day", ["Good day"]),
    ],
)
def test_what_stays_ends_where_its_element_must(page: str, read: list[str]) -> None:
    assert [piece for piece, is_text in pieces(page) if is_text] == read


def test_entities_are_characters_to_the_translator() -> None:
    assert parts_of("<p>Caf&eacute; &amp; more. A &lt; B!</p>", "en", 9)[::2] == ["", "Café & more.", "A < B!", ""]
    assert text_of("<title>One &amp; two</title><p>three", 11) == "One & two t"


def test_the_first_text_of_a_page_is_looked_for_in_its_beginning_alone() -> None:
    head = "<style>" + "a { color: red } " * 4_000 + "</style>"
    assert text_of(f"{head}<p>three", 9) == "three"
    assert text_of("<b>" * (SCANNED // 3) + "<p>three", 9) == ""


def test_sentences_of_a_page_are_counted() -> None:
    assert len(parts_of("<p>A dog. A cat.</p>" * 2, "en", 4)[2:-1:2]) == 4
    with pytest.raises(TooManySentences):
        parts_of("<p>A dog. A cat.</p>" * 2, "en", 3)


@pytest.mark.parametrize(
    "page",
    [
        "<" * 500_000,
        "<a " * 300_000,
        "<a b='" * 200_000,
        "<!--" * 300_000,
        "</" * 300_000,
        "<code>" * 200_000,
        "<li translate=no>" + "<p>" * 300_000,
        "<li translate=no>" + "<p></div>" * 100_000,
        "<script>" * 200_000,
        "<b>x</b>" * 100_000,
        "<svg><script></script>" * 50_000,
        "<a " + "b " * 500_000,
        "<a" + " " * 1_000_000,
    ],
)
def test_no_page_takes_long(page: str) -> None:
    assert sum(len(piece) for piece, _ in pieces(page)) == len(page)  # quadratic work here would take minutes
