"""YAML from files that people write: what is wrong is told in a sentence, without any value."""

from __future__ import annotations

from typing import Any

import yaml

MERGE = "tag:yaml.org,2002:merge"  # of <<, of which there may be several
# What PyYAML lets through where a date, a number or the like is none, as 2024-13-45.
_NOT_VALUES = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice, of which YAML's library would take the last, and nobody hear of the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != MERGE]
        for place, key in enumerate(keys):
            if key in keys[:place]:
                raise yaml.constructor.ConstructorError(
                    "a key is there twice", None, None, node.value[place][0].start_mark
                )
        return super().construct_mapping(node, deep)


class NotYaml(Exception):
    """A text is not YAML; the message shows no value of it, as it may be a secret."""


def parse_yaml(content: bytes | str) -> Any:
    """Return what YAML says; raises `NotYaml`."""
    try:
        return yaml.load(content, _Loader)  # noqa: S506  # which is a safe one
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "context", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise NotYaml(f"not YAML{place}{f': {problem}' if problem else ''}") from None
    except RecursionError:
        raise NotYaml("not YAML: nested too deeply") from None
    except _NOT_VALUES:
        raise NotYaml("not YAML: a value is not what its form or tag says; put texts in quotes") from None
