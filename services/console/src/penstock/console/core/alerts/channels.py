"""Channels: where messages go. Pure."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from penstock.console.core.alerts.rules import Identifier, Name

SCHEMES = (
    "mailto",
    "mailtos",
    "slack",
    "msteams",
    "workflows",
    "discord",
    "ntfy",
    "ntfys",
    "pagerduty",
    "opsgenie",
    "tgram",
    "gotify",
    "gotifys",
    "matrix",
    "matrixs",
    "mmost",
    "mmosts",
    "rocket",
    "rockets",
)
"""Kinds of address that are given to Apprise, of the about 180 that it has."""
MAIL_SCHEMES = ("mailto:", "mailtos:")
LONGEST_URL = 2_000


class BadChannel(ValueError):
    """A channel that cannot be stored: says what was found and what was expected."""


class Channel(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Where messages go; the address and the secret are stored sealed, and are never shown.

    Attributes:
        kind: ``webhook``, ``log``, or ``apprise`` for mail, chats and pagers.
        scheme: of an Apprise address, such as ``mailto``.
        host: of the address, to be recognised by.
        sealed: address and secret, for the holders of the key.
        fallback: channel that is given what this one did not take.
    """

    id: Identifier
    name: Name
    kind: Literal["webhook", "log", "apprise"]
    scheme: str = ""
    host: str = ""
    sealed: str = ""
    fallback: str = ""
    is_enabled: bool = True


class Secrets(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is sealed. ``key``: a webhook's messages are signed with it."""

    url: Annotated[str, msgspec.Meta(max_length=LONGEST_URL)] = ""
    key: Annotated[str, msgspec.Meta(max_length=500)] = ""


def check(kind: str, secrets: Secrets) -> tuple[str, str]:
    """Scheme and host of a channel's address.

    Raises:
        BadChannel: it is none, or of a kind that is not allowed.
    """
    if kind == "log":
        return "log", ""
    scheme, separator, rest = secrets.url.partition("://")
    scheme = scheme.lower()
    if not separator or not rest or any(ord(letter) <= 32 for letter in secrets.url):
        raise BadChannel("found no address, expected SCHEME://… without spaces")
    allowed = ("http", "https") if kind == "webhook" else SCHEMES
    if scheme not in allowed:
        raise BadChannel(f"found the scheme {scheme[:20]!r}, expected one of {', '.join(allowed)}")
    is_named = kind == "webhook" or scheme.startswith(("mailto", "ntfy", "gotify"))
    return scheme, _host(secrets.url) if is_named else ""


def _host(url: str) -> str:
    """Host and port as a connection is made to them. Raises BadChannel."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # its text holds a part of the address, which may be a password
        host, port = "", None
    if not host:
        raise BadChannel("found no host in the address, expected SCHEME://HOST:PORT/…")
    named = f"[{host}]" if ":" in host else host
    return f"{named}:{port}" if port else named
