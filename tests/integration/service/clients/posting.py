"""Native requests, beside which clients' answers are held."""

from __future__ import annotations

from typing import Any

import httpx


def post(url: str, **body: Any) -> Any:
    response = httpx.post(url, json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()
