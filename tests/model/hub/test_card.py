from __future__ import annotations

from pathlib import Path

import pytest

from model.hub.card import ModelCard, read_card


@pytest.mark.parametrize(
    ("front_matter", "card"),
    [
        ("license: mit", ModelCard("mit")),
        ("license: [apache-2.0, cc-by-4.0]\nlanguage: en", ModelCard("apache-2.0, cc-by-4.0", ("en",))),
        ("license: other\nlicense_name: llama3.2", ModelCard("llama3.2")),
        ("license: other", ModelCard("other")),
        ("language:\n- no\n- de\n- 'en'", ModelCard("not stated", ("no", "de", "en"))),
        ("tags: [x", ModelCard()),
        ("just text", ModelCard()),
    ],
)
def test_licence_and_languages_are_read_from_the_front_matter(
    front_matter: str, card: ModelCard, tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text(f"---\n{front_matter}\n---\n# A model\nlicense: none of this\n")

    assert read_card(tmp_path) == card


def test_a_folder_without_a_card_states_nothing(tmp_path: Path) -> None:
    assert read_card(tmp_path) == ModelCard()
    (tmp_path / "README.md").write_text("# A model\n\nlicense: mit\n")
    assert read_card(tmp_path) == ModelCard()
