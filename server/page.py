"""The page for searching: one file, whose scripts and styles are the only ones that browsers let it use."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources

from starlette.responses import Response

__all__ = ["page_response"]

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@cache
def page_response() -> Response:
    """Return the page.

    Its Content-Security-Policy allows what is inline by digests, requests to this server, and nothing else.
    """
    page = resources.files("quarry.server").joinpath("page.html").read_text(encoding="utf-8")
    digests: dict[str, list[str]] = {"script": [], "style": []}
    for kind, content in _INLINE.findall(page):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        digests[kind].append(f"'sha256-{digest}'")
    policy = [
        "default-src 'none'",
        f"script-src {' '.join(digests['script'])}",
        f"style-src {' '.join(digests['style'])}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ]
    headers = {"content-security-policy": "; ".join(policy), "cache-control": "no-cache"}
    return Response(page, media_type="text/html", headers=headers)
