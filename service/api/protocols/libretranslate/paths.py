"""Which paths are LibreTranslate's, and whose body it is on `/translate`, before it is read."""

from __future__ import annotations

import re

REFUSED = frozenset({"/suggest", "/translate_file"})
TAKE_BODIES = frozenset({"/translate", "/detect"}) | REFUSED
# `/languages` too may have a body: one of its clients asks with a GET that has one.
PATHS = TAKE_BODIES | {"/languages", "/frontend/settings"}
OPEN = frozenset({"/frontend/settings"})  # says that a key is needed to who has none, and names no model

_THEIR_TEXT, _OUR_TEXT = re.compile(rb'"q"\s*:'), re.compile(rb'"input"\s*:')


def is_theirs(query: bytes, body: bytes) -> bool:
    """Whether a query string or a body, a form or JSON, has the text of LibreTranslate rather than a native one."""
    return not _OUR_TEXT.search(body) and any(map(_has_their_text, (query, body)))


def _has_their_text(given: bytes) -> bool:
    return given.startswith(b"q=") or b"&q=" in given or _THEIR_TEXT.search(given) is not None
