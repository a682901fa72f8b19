"""The outermost layer: names of this host, ids of requests, and headers of every answer."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from penstock.config.console import Console as ConsoleSettings
from penstock.console.web.problems import MEDIA_TYPE, Problem
from penstock.events.envelope import new_id
from penstock.operations.api_tokens import holds_token

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "require-trusted-types-for 'script'",
        "trusted-types default",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_TLS_HEADERS = ((b"strict-transport-security", b"max-age=31536000"),)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
_FOREIGN_HOST = Problem(
    status=421,
    title="This console is not known by that host name",
    detail="the request's Host header names another host; add the name to console.hosts",
)
_TOKEN_IN_ADDRESS = Problem(
    status=400,
    title="A token stands in the address",
    detail="addresses are kept by proxies, logs and browsers: revoke this token "
    "(penstock api token revoke), and send another one in the header Authorization: Bearer TOKEN",
)


class Gate:
    """Wraps the whole application, its errors included.

    Args:
        app: the application.
        settings: address and further names of this console.
    """

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        names = ("localhost", settings.address, socket.gethostname(), socket.getfqdn())
        public = urlsplit(settings.public_url).hostname or ""
        self._hosts = frozenset(name.lower() for name in (*names, *settings.hosts, public) if name)
        self._added = _HEADERS + (_TLS_HEADERS if settings.tls_certificate_file else ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope["headers"])
        scope["state"] = {**scope.get("state", {}), "request_id": request_id}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = (*self._added, (b"x-request-id", request_id.encode()))
                message["headers"] = [*message["headers"], *own]
            await send(message)

        if not self._is_for_this_host(scope):
            await _refuse(_FOREIGN_HOST, request_id, send_with_headers)
        elif holds_token(scope["path"]) or holds_token(scope["query_string"].decode("latin-1")):
            await _refuse(_TOKEN_IN_ADDRESS, request_id, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def _is_for_this_host(self, scope: Scope) -> bool:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            return False
        host = _without_port(hosts[0].decode("latin-1")).lower()
        return host in self._hosts or _is_address(host)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(host: str) -> bool:
    """Whether it is an IP address, for which no foreign name was resolved."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The caller's own, so that it can be found in its logs, or a new one."""
    named = next((value for name, value in headers if name == b"x-request-id"), b"")
    return named.decode() if _REQUEST_ID.fullmatch(named) else new_id()


async def _refuse(problem: Problem, request_id: str, send: Send) -> None:
    body = msgspec.json.encode(msgspec.structs.replace(problem, request_id=request_id))
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
