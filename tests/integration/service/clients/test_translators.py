"""Clients that translate, as their users install them, against the running service."""

from __future__ import annotations

import deepl
import httpx
import pytest
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI

pytestmark = pytest.mark.integration

DAN = "Dan loves ice cream."
PATHS = ["", "/models/translate"]


def translated(service: str, text: str, source: str, target: str) -> str:
    body = {"input": text, "source": source, "target": target}
    translations: list[str] = httpx.post(f"{service}/translate", json=body, timeout=60).json()["translations"]
    return translations[0]


@pytest.mark.parametrize("path", PATHS)
def test_libretranslatepy_sends_forms(service: str, path: str) -> None:
    client = LibreTranslateAPI(f"{service}{path}", api_key="none")

    assert client.translate(DAN, "en", "sv") == translated(service, DAN, "en", "sv")
    assert client.detect("Niemand weiß, wer das Fenster zerbrochen hat.")[0]["language"] == "de"
    assert {"code": "en", "name": "English", "targets": ["de", "fr", "sv"]} in client.languages()


@pytest.mark.parametrize("path", PATHS)
def test_deep_translator_sends_query_strings(service: str, path: str) -> None:
    client = LibreTranslator(source="en", target="de", api_key="none", custom_url=f"{service}{path}/")

    assert client.translate(DAN) == translated(service, DAN, "en", "de")
    assert client.translate_batch([DAN, "Good."])[1] == translated(service, "Good.", "en", "de")


@pytest.mark.parametrize("path", PATHS)
def test_deepls_own_client_is_answered(service: str, path: str) -> None:
    client = deepl.DeepLClient("none", server_url=f"{service}{path}/", send_platform_info=False)
    german = "Niemand weiß, wer das Fenster zerbrochen hat."

    several, one = (
        client.translate_text([german, DAN], target_lang="FR"),
        client.translate_text(german, source_lang="DE", target_lang="EN-US"),
    )
    assert isinstance(several, list) and isinstance(one, deepl.TextResult)
    assert [each.detected_source_lang for each in several] == ["DE", "EN"]
    assert several[1].text == translated(service, DAN, "en", "fr")
    assert one.text == translated(service, german, "de", "en")
    assert "SV" in {language.code for language in client.get_target_languages()}
    assert "EN" in {language.code for language in client.get_source_languages()}
    assert not client.get_usage().any_limit_reached
    with pytest.raises(deepl.DeepLException, match="target_lang is 'JA'"):
        client.translate_text(DAN, target_lang="JA")
