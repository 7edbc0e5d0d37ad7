"""Of several translators the languages choose, in HAProxy where the body says enough."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.service.stand_ins import GATEWAY, PACKAGES, Ingress, asked, needs_haproxy, post, running_ingress


@pytest.fixture(scope="module")
def translators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingress]:
    """HAProxy before two translators: the bundled one, and one from German and French into English and Swedish."""
    folder = tmp_path_factory.mktemp("translators")
    source = PACKAGES / "translate"
    (folder / "other").mkdir()
    for file in source.iterdir():
        (folder / "other" / file.name).symlink_to(file)
    directions = [["fr", "en"], ["de", "en"], ["de", "sv"], ["de", "nl_NL"]]
    manifest = json.loads((source / "manifest.json").read_text())
    manifest |= {"name": "other", "languages": {**manifest["languages"], "directions": directions}}
    manifest["languages"] |= {"source_begins_with": None, "forces_target": False}
    (folder / "other" / "manifest.json").unlink()
    (folder / "other" / "manifest.json").write_text(json.dumps(manifest))
    models_file = folder / "models.yaml"
    models_file.write_text(f"models:\n  - package: {source}\n  - package: {folder / 'other'}\n")
    with running_ingress(folder, models_file, [GATEWAY, "translate", "other"], asleep=[]) as ingress:
        yield ingress


@needs_haproxy
@pytest.mark.parametrize(
    ("server", "body"),
    [
        ("translate", {"input": "a", "source": "en", "target": "sv"}),
        ("other", {"q": "a", "source": "de", "target": "sv"}),
        ("translate", {"q": "a", "source": "fr", "target": "en"}),  # both do: the first
        ("translate", {"q": 'a "target" and a "source"', "source": "auto", "target": "fr"}),  # only one does
        ("other", {"q": "a", "target": "nl_NL"}),
        ("other", {"model": "other", "q": "a", "source": "en", "target": "de"}),
        (GATEWAY, {"q": "a", "source": "auto", "target": "en"}),  # the text decides
        (GATEWAY, {"q": "a", "target": "sv"}),
        (GATEWAY, {"q": "a", "source": "de", "target": "nl"}),  # another spelling
        (GATEWAY, {"q": "a", "source": "de", "target": "xx"}),
        (GATEWAY, {"q": "a", "source": 5, "target": ["sv"]}),
        (GATEWAY, {"q": "a"}),
        (GATEWAY, {"x": {"target": "sv"}, "source": "en", "target": "de"}),  # twice
    ],
)
def test_of_several_translators_the_languages_choose(translators: Ingress, server: str, body: dict[str, Any]) -> None:
    path = "/translate" if server == GATEWAY else f"/models/{server}/translate"

    assert asked(post(translators, "/translate", json.dumps(body))) == (server, path)


@needs_haproxy
def test_languages_that_could_be_read_otherwise_go_to_the_gateway(translators: Ingress) -> None:
    for body in ('{"source": "en", "t\\u0061rget": "de", "target": "sv"}', '{"target": "de", "source": "e\\u006e"}'):
        assert asked(post(translators, "/translate", body)) == (GATEWAY, "/translate")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert asked(post(translators, "/translate", "q=a&source=en&target=sv", **form)) == (GATEWAY, "/translate")
    assert asked(post(translators, "/detect", '{"q": "a"}')) == (GATEWAY, "/detect")
