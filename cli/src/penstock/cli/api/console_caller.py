"""Requests to a running console, by HTTP."""

from __future__ import annotations

import ssl
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

import msgspec

from penstock.bus.access import is_loopback
from penstock.cli.errors import Failed, Refused

_SECONDS = 10.0
_MOST_BYTES = 4_000_000
_UNAUTHORISED = 401


class NotLetIn(Exception):
    """The console asks for a token, or for another one."""


class _NoRedirects(HTTPRedirectHandler):
    """A token is sent to the address that was named alone."""

    def redirect_request(self, *_: Any) -> None:
        return None


class ConsoleCaller:
    """Asks one console. Calls block.

    Args:
        url: such as ``https://penstock.example.org:9470``.
        authority_file: PEM of a further authority that its certificate may be signed by; empty for
            those that the system knows alone.

    Raises:
        Refused: no such address, or no certificates in that file.
    """

    def __init__(self, url: str, authority_file: str = "") -> None:
        self.url = url.rstrip("/")
        self._is_private = _is_private(self.url)
        try:
            context = ssl.create_default_context()
            if authority_file:
                context.load_verify_locations(authority_file)
        except OSError as error:
            raise Refused(f"{authority_file} cannot be used: {error}") from None
        self._opener = build_opener(ProxyHandler({}), _NoRedirects(), HTTPSHandler(context=context))

    def get(self, path: str, token: str = "") -> dict[str, Any]:
        """What the console answers. Raises NotLetIn, Refused, Failed."""
        return self._answer(path, None, token)

    def post(self, path: str, body: dict[str, Any], token: str) -> dict[str, Any]:
        """Acts. Raises NotLetIn, Refused, Failed."""
        return self._answer(path, msgspec.json.encode(body), token)

    def _answer(self, path: str, body: bytes | None, token: str) -> dict[str, Any]:
        if token and not self._is_private:
            raise Refused(f"{self.url}: a token is sent by https alone, but for this machine")
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        request = Request(f"{self.url}/api/v1{path}", body, headers)  # noqa: S310 - checked above
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                return _decoded(answer.read(_MOST_BYTES))
        except HTTPError as error:
            if error.code == _UNAUTHORISED:
                raise NotLetIn from None
            problem = _decoded(error.read(_MOST_BYTES))
            raise Failed(f"{self.url}: {problem.get('detail') or error}") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise Failed(
                    f"{self.url}: its certificate is not trusted ({reason.verify_message}); give "
                    "the PEM of the authority that signed it with --ca-file"
                ) from None
            raise Failed(
                f"no console answers at {self.url} ({reason}); 'penstock console' and "
                "'penstock up' print where theirs is: give that with --url"
            ) from None


def _is_private(url: str) -> bool:
    """Whether no machine on the way reads what is sent. Raises Refused: no web address."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.path
    except ValueError:
        is_address = False
    if not is_address:
        raise Refused(f"found {url!r}, expected an address such as https://penstock.example.org")
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
