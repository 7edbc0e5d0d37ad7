from __future__ import annotations

from pathlib import Path

import pytest

from model.hub.card import read_licence


@pytest.mark.parametrize(
    ("front_matter", "licence"),
    [
        ("license: mit", "mit"),
        ("license: [apache-2.0, cc-by-4.0]\nlanguage: en", "apache-2.0, cc-by-4.0"),
        ("license: other\nlicense_name: llama3.2", "llama3.2"),
        ("license: other", "other"),
        ("license: no\nlanguage: en", "not stated"),
        ("license: mit\ntags: [a]\ntags: [b]", "mit"),  # as cards are often broken
        ("tags: [x", "not stated"),
        ("just text", "not stated"),
    ],
)
def test_a_licence_is_read_from_the_front_matter(front_matter: str, licence: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(f"---\n{front_matter}\n---\n# A model\nlicense: none of this\n")

    assert read_licence(tmp_path) == licence


def test_a_folder_without_a_card_states_nothing(tmp_path: Path) -> None:
    assert read_licence(tmp_path) == "not stated"
    (tmp_path / "README.md").write_text("# A model\n\nlicense: mit\n")
    assert read_licence(tmp_path) == "not stated"
