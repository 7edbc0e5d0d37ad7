from __future__ import annotations

import pytest

from service.languages import Detector

BOKMAL = "Jeg heter Kari og kommer fra Norge, hvor det er veldig kaldt om vinteren, og jeg liker ikke å fryse."
NYNORSK = "Eg heiter Kari og kjem frå Noreg, der det er veldig kaldt om vinteren, og eg likar ikkje å frysa."


@pytest.mark.parametrize(
    ("names", "text", "found"),
    [
        (["arb_Arab", "eng_Latn"], "لا أعرف لماذا لم يخبرهم أحد بذلك حتى الآن.", "arb_Arab"),
        (["pes_Arab", "eng_Latn"], "نمی‌دانم چرا کسی این را به آنها نگفته است.", "pes_Arab"),
        (["lvs_Latn", "eng_Latn"], "Es nezinu, kāpēc neviens viņiem to nav pateicis.", "lvs_Latn"),
        (["nob_Latn", "nno_Latn", "eng_Latn"], BOKMAL, "nob_Latn"),
        (["nob_Latn", "nno_Latn", "eng_Latn"], NYNORSK, "nno_Latn"),
        (["no", "en"], BOKMAL, "no"),
        (["no", "en"], NYNORSK, "no"),
        (["en", "de"], BOKMAL, "no"),  # as py3langid calls it
        (["en", "de"], "Ｗｈｅｒｅ ｉｓ ｔｈｅ ｓｔａｔｉｏｎ？", "en"),
        (["ja", "en"], "ｶﾞｯｺｳﾆ ｲｷﾏｼﾀ", "ja"),
        (["zh", "en"], "你好吗？", "zh"),  # by its question mark
        (["sv", "en"], "대박 ㅋㅋㅋㅋㅋㅋㅋㅋㅋ", "ko"),  # by letters that stand alone
    ],
)
def test_a_text_is_in_a_language_by_whichever_name_the_model_knows_it(names: list[str], text: str, found: str) -> None:
    guesses, surely = Detector(names).read(text)

    assert surely == found
    assert guesses[0].language == found or found not in names
    assert len({guess.language for guess in guesses}) == len(guesses) == len(names)


@pytest.mark.parametrize("names", [["ja", "en"], ["el", "en"], ["zh", "ko", "en"]])
@pytest.mark.parametrize(("text", "found"), [("Привет, как дела?", "ru"), ("مرحبا بك", "ar")])
def test_a_few_words_in_a_script_of_none_of_the_models_languages_are_in_another(
    names: list[str], text: str, found: str
) -> None:
    assert Detector(names).read(text)[1] == found


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["ja", "en"], "営業中"),
        (["ja", "en"], "個人情報保護方針"),
        (["hi", "en"], "धन्यवाद"),
        (["hi", "en"], "शुभ प्रभात"),
        (["en", "de"], "banana, papaya, mango"),
        (["ja", "en"], "banana, papaya, mango"),
    ],
)
def test_a_few_words_that_may_be_in_several_languages_are_surely_in_none(names: list[str], text: str) -> None:
    assert Detector(names).read(text)[1] is None
