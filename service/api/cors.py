"""What pages of allowed sites may send and read (CORS): the API says it, and HAProxy where it answers itself."""

from __future__ import annotations

from service.api.allowances import RATE_HEADERS

METHODS = ("GET", "HEAD", "POST")
READABLE = ("Retry-After", "X-Request-ID", "X-Should-Retry", *RATE_HEADERS)  # headers of answers
KNOWN_FOR_S = 600  # a browser need not ask again so long
