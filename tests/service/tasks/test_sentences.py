from __future__ import annotations

from functools import partial
from html import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.tasks.sentences import TooManySentences, cut, is_within_word, split, without_words_kept


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Dan loves ice cream.", ["Dan loves ice cream."]),
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("It costs 3.50 dollars. Cheap!", ["It costs 3.50 dollars.", "Cheap!"]),
        ("Ask Mr. Smith. He knows.", ["Ask Mr. Smith.", "He knows."]),
        ("e.g. this one stays whole.", ["e.g. this one stays whole."]),
        ("Bring apples, e.g. two etc. and pears.", ["Bring apples, e.g. two etc. and pears."]),
        ("i like dogs. they are nice. we went home? yes!", ["i like dogs.", "they are nice.", "we went home?", "yes!"]),
        ("ა. ბ. შანიძე აქ იყო.", ["ა. ბ. შანიძე აქ იყო."]),
        ("გამარჯობა მსოფლიო. როგორ ხარ? NATO.", ["გამარჯობა მსოფლიო.", "როგორ ხარ?", "NATO."]),
        ('"Come in." "Thank you."', ['"Come in."', '"Thank you."']),
        ("A title\n\nA text. And more.\n", ["A title", "A text.", "And more."]),
        ("Wait... what? Yes.", ["Wait... what?", "Yes."]),
        ("Is it so?Yes. He left.She came.", ["Is it so?", "Yes.", "He left.", "She came."]),
        ("ASP.NET runs. Open README.TXT now!", ["ASP.NET runs.", "Open README.TXT now!"]),
        ("See example.com/U.S.?X=1 first. Go.", ["See example.com/U.S.?X=1 first.", "Go."]),
        ("Å. Larsson and E\u0301. Zola met И. Вазов. Good.", ["Å. Larsson and E\u0301. Zola met И. Вазов.", "Good."]),
        ("  indented", ["indented"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_sentences_are_found(text: str, sentences: list[str]) -> None:
    assert [part for part in split(text)[::2] if part] == sentences


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("42", ["", "42", ""]),
        ("Room 5.\n42\n***\nOpen.\n12:30", ["Room 5.", "\n42\n***\n", "Open.", "\n12:30", ""]),
        ("- \nOne. Two.", ["", "- \n", "One.", " ", "Two."]),
        ("5 < 6\nÉtat", ["", "5 &lt; 6\n", "État"]),
        ("", ["", "", ""]),
        ("½\n10⁻³\n① Ⅳ\n5 m²", ["", "½\n10⁻³\n① Ⅳ\n", "5 m²"]),
        ("５。", ["５。"]),
        ("٤٢", ["٤٢"]),
        ("★ 🙂", ["", "★ 🙂", ""]),
        ("https://example.com/docs/index.html", ["", "https://example.com/docs/index.html", ""]),
        ("Ask\njohn.doe@example.com.\nSoon.", ["Ask", "\njohn.doe@example.com.\n", "Soon."]),
        ("```python\nGo.", ["", "```python\n", "Go."]),
        ("See www.example.com now.", ["See www.example.com now."]),
        ("https://de.wikipedia.org/wiki/Köln", ["", "https://de.wikipedia.org/wiki/Köln", ""]),
        ("https://ru.wikipedia.org/wiki/Москва", ["", "https://ru.wikipedia.org/wiki/Москва", ""]),
        ("https://ja.wikipedia.org/wiki/進撃の巨人", ["", "https://ja.wikipedia.org/wiki/進撃の巨人", ""]),
        ("иван@пример.рф", ["", "иван@пример.рф", ""]),
        ("https://example.comは便利なサイトです", ["https://example.comは便利なサイトです"]),
        ("https://example.com/は便利です", ["https://example.com/は便利です"]),
        ("https://example.com/docs/をご覧ください", ["https://example.com/docs/をご覧ください"]),
        ("https://example.com/docs/是说明。", ["https://example.com/docs/是说明。"]),
        ("https://example.com입니다.", ["https://example.com입니다."]),
        ("请发送电子邮件至support@example.com", ["请发送电子邮件至support@example.com"]),
        ("- https://example.com/a\n* www.example.com", ["", "- https://example.com/a\n* www.example.com", ""]),
        (
            "> > Is it so?\n- [x] Buy milk\n3) Go",
            ["", "&gt; &gt; ", "Is it so?", "\n- [x] ", "Buy milk", "\n3) ", "Go"],
        ),
        ("# Title\n-5 dogs", ["", "# ", "Title", "\n", "-5 dogs"]),
        ("I like it - a lot. - Really?", ["I like it - a lot.", " ", "- Really?"]),
    ],
)
def test_sentences_without_a_letter_stay_as_they_are(text: str, kept: list[str]) -> None:
    parts = split(text)
    starts = [len("".join(parts[:place])) for place in range(len(parts))]
    found, places = without_words_kept(parts, starts, partial(escape, quote=False))

    assert found == kept
    assert places == [
        len("".join(found[:place]).replace("&lt;", "<").replace("&gt;", ">")) for place in range(len(found))
    ]


@pytest.mark.parametrize(
    ("gap", "markers"), [("<p>", 1), ("<br/>\n", 1), ('<li class="a">', 1), ("<b>", 0), ("<px>", 0), (" ", 0)]
)
def test_a_line_of_a_page_begins_behind_a_tag_that_begins_a_block(gap: str, markers: int) -> None:
    found, _ = without_words_kept(["Hello.", gap, "- Buy milk"], [0, 6, 6 + len(gap)])

    assert found == ["Hello.", f"{gap}{'- ' * markers}", "Buy milk" if markers else "- Buy milk"]


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("de", "Am 20. Oktober kam z. B. Dr. Müller. Gut.", ["Am 20. Oktober kam z. B. Dr. Müller.", "Gut."]),
        (
            "fr",
            "M. Dupont est là. Il dit « Oui ! » Puis il part.",
            ["M. Dupont est là.", "Il dit « Oui ! »", "Puis il part."],
        ),
        ("sv", "Det är t.ex. bra. Ja!", ["Det är t.ex. bra.", "Ja!"]),
        ("ja", "これはペンです。あれは本です。", ["これはペンです。", "あれは本です。"]),
        ("hi", "यह एक वाक्य है। यह दूसरा है।", ["यह एक वाक्य है।", "यह दूसरा है।"]),
        ("km", "នេះជាសៀវភៅ។នោះជាផ្ទះ។", ["នេះជាសៀវភៅ។", "នោះជាផ្ទះ។"]),
        ("km", "ខ្ញុំទិញផ្លែឈើ។ល។ និងសាច់។", ["ខ្ញុំទិញផ្លែឈើ។ល។", "និងសាច់។"]),  # "and so on"
        ("bo", "འདི་དེབ་རེད། དེ་ཁང་པ་རེད།", ["འདི་དེབ་རེད།", "དེ་ཁང་པ་རེད།"]),
        ("bo", "འདི་དེབ་རེད། །དེ་ཁང་པ་རེད། །", ["འདི་དེབ་རེད། །", "དེ་ཁང་པ་རེད། །"]),
        ("el", "Ναι\u037e Όχι; Ίσως.", ["Ναι\u037e", "Όχι;", "Ίσως."]),
        ("tlh", "nuqneH. Qapla'!", ["nuqneH.", "Qapla'!"]),
    ],
)
def test_languages_have_rules_of_their_own(language: str, text: str, sentences: list[str]) -> None:
    assert [part for part in split(text, language)[::2] if part] == sentences


@pytest.mark.parametrize("new_line", ["\n", "\r", "\r\n", "\v", "\f", "\x85", "\u2028", "\u2029"])
def test_a_sentence_ends_at_every_new_line(new_line: str) -> None:
    assert split(f"My dog{new_line}My house") == ["My dog", new_line, "My house"]


@pytest.mark.parametrize("space", ["\xa0", "\u2009", "\u202f", "\u3000"])
def test_white_space_of_any_kind_may_stand_before_a_full_stop(space: str) -> None:
    assert split(f"This is plan B{space}. Here is another one.")[::2] == [
        f"This is plan B{space}.",
        "Here is another one.",
    ]


def test_a_quotation_stays_whole_unless_it_is_long() -> None:
    quoted = 'He said: "I am here. You are there."'

    assert split(quoted) == [quoted]
    assert len(split(f'He said: "{"I am here. " * 50}"')) > 90


@pytest.mark.parametrize(
    ("language", "quotation", "sentence"),
    [
        ("zh", "“{}”", "今天天气很好。"),
        ("ja", "「{}」", "すごい！？\u3000"),
        ("ja", "（{}）", "「円周率は３．１４です．」"),
        ("hi", "“{}”", "आज मौसम अच्छा है। "),
        ("ur", "“{}”", "آج موسم اچھا ہے۔ "),
        ("ar", "«{}»", "هل الطقس جميل اليوم؟ "),
        ("am", "“{}”", "ዛሬ አየሩ ጥሩ ነው። "),
        ("hy", "«{}»", "Այսօր եղանակը լավ է։ "),
        ("my", "“{}”", "ဒီနေ့ရာသီဥတုကောင်းတယ်။ "),
        ("el", "«{}»", "Πού είσαι; "),
    ],
)
def test_a_long_quotation_is_split_by_the_marks_of_its_script(language: str, quotation: str, sentence: str) -> None:
    count = 500 // len(sentence)

    sentences = split(quotation.format((sentence * count).strip()), language)[::2]

    assert sentences[1:-1] == [sentence.strip()] * (count - 2)


@given(
    text=st.text(alphabet="aB.!?… \n\r\t\xa0\u2028\u3000\x1c\"'«»“„()。」！1:;é།", max_size=60),
    language=st.sampled_from(["en", "fr", "zh", "bo"]),
)
@settings(max_examples=500)
def test_any_text_joined_is_the_text(text: str, language: str) -> None:
    parts = split(text, language)

    assert "".join(parts) == text
    assert all(not part.strip() for part in parts[1::2])


@pytest.mark.parametrize(
    "text",
    [
        *("« a. " * 50_000, "「a。" * 100_000, "A. " * 300_000, "(a.) " * 50_000, "a\r" * 100_000),
        *(" " * 200_000 + "a", "a" + " " * 200_000 + "b", "\n" * 200_000, '."' * 100_000),
        *("「" + "。" * 200_000, "「a。" + "」" * 200_000, "「" + "．5" * 100_000),
        *("https://a/" + "b/" * 100_000 + "。 a", "a@" + "b." * 100_000 + " a"),
    ],
)
def test_no_text_takes_long(text: str) -> None:
    assert "".join(split(text)) == text  # quadratic work here would take minutes


@pytest.mark.parametrize(
    "text", ["", " ", "One.  Two.\n\n Three ", "\n\na\n", "J. R. R. Tolkien. Yes.", 'He said "Go!" Then he left.']
)
def test_the_parts_joined_are_the_text(text: str) -> None:
    parts = split(text)

    assert "".join(parts) == text
    assert all(not part.strip() for part in parts[1::2])


def test_lines_without_words_hardly_count() -> None:
    numbers = "\n".join(map(str, range(40)))

    assert split(f"One.\n{numbers}\nTwo.", most=5)[::2].count("7") == 1
    with pytest.raises(TooManySentences):
        split("One.\n" * 6, most=5)
    with pytest.raises(TooManySentences):
        split("1\n" * 1000, most=5)


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        ("short", ["short"]),
        ("one two three, four five", ["one two three,", "four five"]),
        ("at 12:30 go to 1,000", ["at 12:30", "go to 1,000"]),
        ("one two three four", ["one two", "three four"]),
        ("漢字漢字漢字漢字漢字、漢字漢字漢字", ["漢字漢字漢字漢字漢字、", "漢字漢字漢字"]),
        ("漢字漢字。」漢字漢字、漢字漢字漢字", ["漢字漢字。」", "漢字漢字、漢字漢字漢字"]),
        ("e\u0301" * 8, ["e\u0301" * 4, "e\u0301" * 4]),
        ("e" + "\u0301" * 27, ["e" + "\u0301" * 13, "\u0301" * 14]),  # of no letter that anybody writes
    ],
)
def test_a_sentence_is_cut_in_the_middle_where_it_hurts_least(sentence: str, parts: list[str]) -> None:
    found = cut(sentence, lambda begin, end: end - begin <= 14)

    assert "".join(found) == sentence and found[::2] == parts


@pytest.mark.parametrize(("part", "is_within"), [("यह है।", False), ("Այո։", False), ("अच्", True), ("Wor", True)])
def test_a_part_that_ends_with_a_mark_ends_within_no_word(part: str, is_within: bool) -> None:
    assert is_within_word(part, "hi") is is_within


def test_white_space_without_end_takes_no_longer_to_cut() -> None:
    sentence = "a b " * 100 + " " * 400_000 + "z"

    parts = cut(sentence, lambda begin, end: end - begin <= 1000)  # quadratic work here would take minutes

    assert "".join(parts) == sentence


@given(st.text(max_size=200), st.integers(1, 50))
def test_no_part_of_a_cut_sentence_is_too_long_and_nothing_is_lost(sentence: str, most: int) -> None:
    parts = cut(sentence, lambda begin, end: end - begin <= most)

    assert "".join(parts) == sentence and all(len(part) <= most for part in parts[::2])
