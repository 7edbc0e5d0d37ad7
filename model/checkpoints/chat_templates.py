"""The template of a checkpoint's conversations, and the tokens that it names."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from model.checkpoints.errors import CheckpointError
from model.checkpoints.tokenizer.files import CONFIG, TokenizerFiles
from model.package import ChatTemplate
from model.package.chat import MAX_TEMPLATE, TemplateError, compiled

CHAT_TEMPLATE_FILE, TOOLS_TEMPLATE_FILE = "chat_template.jinja", "additional_chat_templates/tool_use.jinja"


def read_chat_template(folder: Path) -> ChatTemplate | None:
    """Return the template of a checkpoint's conversations, if it has one; raises `CheckpointError`."""
    files = TokenizerFiles.read(folder)
    source, tools_source = _template_sources(folder, files.config.get("chat_template"))
    if source is None:
        return None
    if max(len(source), len(tools_source or "")) > MAX_TEMPLATE:
        raise CheckpointError(f"{folder}: the chat template has more than {MAX_TEMPLATE:,} characters")
    try:
        compiled(source)
        compiled(tools_source or "")
        return ChatTemplate(source=source, tools_source=tools_source, tokens=files.named_tokens)
    except (TemplateError, ValidationError, KeyError) as error:
        raise CheckpointError(f"{folder}: the chat template cannot be used: {error}") from None


def _template_sources(folder: Path, configured: object) -> tuple[str | None, str | None]:
    """Return a template, and the one for conversations with tools where that is another."""
    file, of_tools = folder / CHAT_TEMPLATE_FILE, folder / TOOLS_TEMPLATE_FILE
    if file.is_file():
        return _beginning(file), _beginning(of_tools) if of_tools.is_file() else None
    tools_source = None
    if isinstance(configured, list):  # of several templates, by name
        named = {entry.get("name"): entry.get("template") for entry in configured if isinstance(entry, dict)}
        if "default" not in named:
            raise CheckpointError(f"{folder / CONFIG}: chat_template has {', '.join(map(str, named))}, but no default")
        configured, tools_source = named["default"], named.get("tool_use")
    return _text(folder, configured), _text(folder, tools_source)


def _text(folder: Path, template: object) -> str | None:
    if template is not None and not isinstance(template, str):
        raise CheckpointError(f"{folder / CONFIG}: chat_template is not a text")
    return template


def _beginning(file: Path) -> str:
    """Return a template, of one that is too long no more than tells it."""
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(MAX_TEMPLATE + 1)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file}: cannot be read: {error}") from None
