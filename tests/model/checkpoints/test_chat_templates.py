from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model.checkpoints.chat_templates import read_chat_template
from model.checkpoints.errors import CheckpointError


def test_a_chat_template_is_found_where_it_may_be(tmp_path: Path) -> None:
    config = tmp_path / "tokenizer_config.json"
    assert read_chat_template(tmp_path) is None

    config.write_text(json.dumps({"chat_template": "{{ bos_token }}", "bos_token": {"content": "<s>"}}))
    found = read_chat_template(tmp_path)
    assert found is not None and (found.source, found.tokens) == ("{{ bos_token }}", {"bos_token": "<s>"})

    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    config.write_text(json.dumps({"chat_template": named}))
    found = read_chat_template(tmp_path)
    assert found is not None and (found.source, found.tools_source) == ("plain", "tools")

    (tmp_path / "chat_template.jinja").write_text("of a file")
    found = read_chat_template(tmp_path)
    assert found is not None and (found.source, found.tools_source) == ("of a file", None)
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("of tools")
    found = read_chat_template(tmp_path)
    assert found is not None and (found.source, found.tools_source) == ("of a file", "of tools")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"chat_template": "{% for %}"}, "the chat template cannot be used: Expected an expression"),
        ({"chat_template": [{"name": "rag", "template": ""}]}, "chat_template has rag, but no default"),
        ({"chat_template": 5}, "chat_template is not a text"),
        (
            {"chat_template": [{"name": "default", "template": ""}, {"name": "tool_use", "template": "{% for %}"}]},
            "the chat template cannot be used: Expected an expression",
        ),
        ({"chat_template": "x" * 262_145}, "the chat template has more than 262,144 characters"),
        ({"chat_template": "x", "eos_token": ["</s>"]}, r"eos_token is \['</s>'\], which is no text"),
        ({"chat_template": "x", "bos_token": {"content": None}}, "which is no text"),
    ],
)
def test_a_chat_template_that_cannot_be_used_is_refused(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))

    with pytest.raises(CheckpointError, match=words):
        read_chat_template(tmp_path)


def test_of_a_chat_templates_file_no_more_is_read_than_a_template_may_have(tmp_path: Path) -> None:
    with (tmp_path / "chat_template.jinja").open("wb") as file:
        file.truncate(2**30)  # a hole, which takes no space

    with pytest.raises(CheckpointError, match="the chat template has more than 262,144 characters"):
        read_chat_template(tmp_path)


def test_a_chat_templates_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"{{ \xff }}")

    with pytest.raises(CheckpointError, match=r"chat_template\.jinja: cannot be read"):
        read_chat_template(tmp_path)


def test_a_chat_templates_tokens_are_in_either_file_and_the_tokenizers_comes_first(tmp_path: Path) -> None:
    named = {"chat_template": "", "bos_token": "<s>", "eos_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<b>", "eos_token": "<e>"}))
    found = read_chat_template(tmp_path)

    assert found is not None and found.tokens == {"bos_token": "<s>", "eos_token": "<e>"}


def test_a_chat_templates_tokens_may_have_names_of_their_own(tmp_path: Path) -> None:
    named = {
        "chat_template": "{{ turn_token }}{{ image_token }}",
        "extra_special_tokens": {"turn_token": "<|turn|>"},
        "image_token": {"content": "<|image|>", "lstrip": False},
        "add_bos_token": True,  # which is no token
        "max_token": {"of": "another kind"},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    found = read_chat_template(tmp_path)

    assert found is not None and found.tokens == {"turn_token": "<|turn|>", "image_token": "<|image|>"}
