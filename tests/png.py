"""Parts of PNG files (W3C's Portable Network Graphics, section 5.3)."""

from __future__ import annotations

import zlib


def chunk(kind: bytes, content: bytes) -> bytes:
    """Return a part of a PNG."""
    return len(content).to_bytes(4) + kind + content + zlib.crc32(kind + content).to_bytes(4)
