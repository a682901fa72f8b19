"""A form's request as one of the API: the checks, audit entries and answers of programs."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from litestar import Request
from litestar.types import HTTPScope, Message

from penstock.console.api.router import PATH
from penstock.console.web.problems import Problem

_OF_THE_FORM = {b"content-type", b"content-length", b"accept", b"accept-encoding", b"if-none-match"}
_BASIC = ("type", "asgi", "http_version", "scheme", "server", "client", "root_path", "extensions")
_LEAST_ERROR = 400


class Answer(NamedTuple):
    """What the API answered.

    Attributes:
        problem: why it was refused, as a sentence; empty where it was accepted.
    """

    status: int
    body: bytes
    problem: str

    @property
    def is_accepted(self) -> bool:
        """Whether the act was done."""
        return self.status < _LEAST_ERROR


async def send(
    request: Request[Any, Any, Any],
    method: str,
    path: str,
    body: Any = None,
    once: str = "",
    query: str = "",
    version: str = "",
) -> Answer:
    """Sends a request to the API as the viewer of a page.

    Args:
        request: of the page: its credentials, its origin and its id are used.
        method: of the API's endpoint.
        path: below ``/api/v1``, not quoted.
        body: as JSON; None for none.
        once: key under which it has one effect, however often the form is sent.
        query: parameters, quoted.
        version: entity tag of what is changed, for ``If-Match``; empty: whatever it is.
    """
    content = b"" if body is None else msgspec.json.encode(body)
    scope = _scope(request, method, f"{PATH}{path}", content, once)
    scope["query_string"] = query.encode()
    if version:
        scope["headers"] = [*scope["headers"], (b"if-match", version.encode("ascii", "replace"))]
    status, parts = 500, list[bytes]()

    messages = iter([{"type": "http.request", "body": content, "more_body": False}])

    async def receive() -> Any:
        # After the body comes nothing but the end of the viewer's connection.
        return next(messages, None) or await request.receive()

    async def take(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await request.app(scope, receive, take)
    answered = b"".join(parts)
    return Answer(status, answered, sentence(answered) if status >= _LEAST_ERROR else "")


def sentence(body: bytes) -> str:
    """Problem details as text for a person."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        return "The console failed; its log says why."
    wrong = [f"{one.pointer or one.parameter}: {one.detail}" for one in problem.errors]
    detail = "; ".join([problem.detail, *wrong] if problem.detail else wrong)
    text = f"{problem.title}: {detail}" if detail else problem.title
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _scope(
    request: Request[Any, Any, Any], method: str, path: str, content: bytes, once: str
) -> HTTPScope:
    headers = [
        (name, value) for name, value in request.scope["headers"] if name not in _OF_THE_FORM
    ]
    headers += [(b"accept", b"application/json"), (b"content-length", b"%d" % len(content))]
    if content:
        headers.append((b"content-type", b"application/json"))
    if once:
        headers.append((b"idempotency-key", once.encode("ascii", "replace")))
    made: dict[str, Any] = {name: request.scope.get(name) for name in _BASIC}
    made |= {"method": method, "path": path, "raw_path": quote(path).encode(), "query_string": b""}
    made |= {"headers": headers, "state": {"request_id": request.state.get("request_id", "")}}
    return made  # type: ignore[return-value]
