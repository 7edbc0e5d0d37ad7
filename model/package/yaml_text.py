"""YAML from files that people write: what is wrong is told in a sentence, without any value."""

from __future__ import annotations

from typing import Any

import yaml

MERGE = "tag:yaml.org,2002:merge"  # of <<, of which there may be several
# What PyYAML lets through where a date, a number or the like is none, as 2024-13-45.
_NOT_VALUES = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)


class NotYaml(Exception):
    """A text is not YAML; the message shows no value of it, as it may be a secret."""


def parse_yaml(content: bytes | str, *, twice: bool = False) -> Any:
    """Return what YAML says; raises `NotYaml`, also for a key that a mapping has twice, unless it may be there `twice`.

    YAML's library would take the last, and nobody hear of the first.
    """
    loader = None
    try:
        loader = yaml.SafeLoader(content)
        node = loader.get_single_node()
        if node is None:
            return None
        if not twice:
            _check_keys(node)
        return loader.construct_document(node)
    except yaml.reader.ReaderError as error:
        raise NotYaml(f"not YAML{_not_utf8(content, error)}") from None
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "context", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise NotYaml(f"not YAML{place}{f': {problem}' if problem else ''}") from None
    except RecursionError:
        raise NotYaml("not YAML: nested too deeply") from None
    except _NOT_VALUES:
        raise NotYaml("not YAML: a value is not what its form or tag says; put texts in quotes") from None
    finally:
        if loader is not None:
            loader.dispose()


def _not_utf8(content: bytes | str, error: yaml.reader.ReaderError) -> str:
    """Return where the first byte stands that cannot be read, if that is what was wrong."""
    if isinstance(content, str) or error.encoding != "utf-8":
        return ""
    line = content.count(b"\n", 0, error.position) + 1
    return f", line {line}: the byte 0x{error.character:02x} is not UTF-8"


def _check_keys(root: yaml.Node) -> None:
    """Refuse a key that is there twice in a mapping, as it is written: what is merged into one may be there, too."""
    left, seen = [root], {id(root)}
    while left:
        node = left.pop()
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            keys: set[tuple[str, str]] = set()
            for key, value in node.value:
                inner += [key, value]
                if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                    continue
                if (key.tag, key.value) in keys:
                    raise yaml.constructor.ConstructorError("a key is there twice", None, None, key.start_mark)
                keys.add((key.tag, key.value))
        elif isinstance(node, yaml.SequenceNode):
            inner = node.value
        left += [each for each in inner if id(each) not in seen]
        seen.update(map(id, inner))
