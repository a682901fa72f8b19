"""Requests that another site has a browser send: refused by what browsers say of their origin."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from litestar.exceptions import PermissionDeniedException


def check_origin(headers: Mapping[str, str]) -> None:
    """Refuses a request that acts and that no page of this console sent.

    Browsers set ``Sec-Fetch-Site``, which no page can change; those of before 2023 set ``Origin``.
    A request without both comes from no browser, or from one that hides it.

    Raises:
        PermissionDeniedException: it comes from another site, or does not say from where.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        is_own = site == "same-origin"
    else:
        origin = headers.get("origin", "")
        host = headers.get("host", "")
        is_own = bool(host) and _host(origin) == host.lower()
    if not is_own:
        raise PermissionDeniedException(
            "this request acts, and was not sent by a page of this console "
            "(Sec-Fetch-Site, Origin); programs send a token: Authorization: Bearer TOKEN"
        )


def safe_path(wanted: str) -> str:
    """Where to go after a login: a path of this console; ``/`` for anything else."""
    is_path = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    is_plain = wanted.isascii() and wanted.isprintable() and "\\" not in wanted
    return wanted if is_path and is_plain and len(wanted) <= 2_000 else "/"


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
