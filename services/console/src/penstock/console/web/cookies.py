"""Cookies that script cannot read and other sites do not send along with an act."""

from __future__ import annotations

from http.cookies import SimpleCookie

_LONGEST_HEADER = 16_384


def made(name: str, value: str, *, is_encrypted: bool, seconds: int) -> str:
    """The value of a ``Set-Cookie`` header.

    Args:
        name: of the cookie.
        value: empty, with 0 seconds, to remove it.
        is_encrypted: the console is served by TLS, and the cookie sent by TLS alone.
        seconds: after which the browser drops it.
    """
    cookie: SimpleCookie = SimpleCookie()
    cookie[name] = value
    cookie[name]["path"] = "/"
    cookie[name]["httponly"] = True
    cookie[name]["samesite"] = "Lax"
    cookie[name]["max-age"] = seconds
    if is_encrypted:
        cookie[name]["secure"] = True
    return cookie[name].OutputString()


def only(header: str, name: str) -> str:
    """The value of a cookie; empty where there is none.

    Empty, too, where there are several: one was planted by another server of this host.
    """
    if not header or len(header) > _LONGEST_HEADER:
        return ""
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    values = [value for key, _, value in pairs if key == name]
    return values[0] if len(values) == 1 else ""
