"""Entity tags: what has not changed is not sent again, and what changed meanwhile is not replaced.

An answer that is made of a source with a version has that version as its tag
(:func:`penstock.console.web.access.changes_with`). All others have one made of what they hold, by
:class:`TaggedResponse`, or their handler's own.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

from litestar import MediaType, Response
from litestar.datastructures import Headers
from litestar.exceptions import HTTPException
from litestar.response.base import ASGIResponse
from litestar.serialization import get_serializer
from litestar.types import Message, Send

T = TypeVar("T")

PRECONDITION_FAILED = 412
_OK, _NOT_MODIFIED = 200, 304
_KEPT = {b"etag", b"cache-control", b"vary"}
_LENGTH = 32


class TaggedResponse(Response[T]):
    """An answer as JSON, with a tag made of its bytes."""

    def to_asgi_response(self, *args: Any, **options: Any) -> ASGIResponse:
        """Encodes the answer once, and tags it."""
        encode = get_serializer(self.response_type_encoders)
        body = self.render(self.content, MediaType.JSON, encode)
        self.content = body  # type: ignore[assignment]  # bytes are sent as they are
        self.headers.setdefault("etag", f'W/"{hashlib.sha256(body).hexdigest()[:_LENGTH]}"')
        return super().to_asgi_response(*args, **options)


def check_unchanged(headers: Headers, entity_tag: str) -> None:
    """Refuses a change of what was changed since the caller read it (``If-Match``).

    Args:
        headers: of the request; without ``If-Match`` it is not refused.
        entity_tag: of what is stored now.

    Raises:
        HTTPException: status 412.
    """
    wanted = wanted_tags(headers)
    if wanted and "*" not in wanted and entity_tag not in wanted:
        raise HTTPException(
            f"it was changed since: found version {entity_tag}, "
            f"expected {' or '.join(wanted)[:80]}",
            status_code=PRECONDITION_FAILED,
        )


def wanted_tags(headers: Headers) -> list[str]:
    """The tags of which one is to be changed (``If-Match``); empty: whatever is stored."""
    return _tags(headers.get("if-match", ""))


def tag(version: int | str) -> str:
    """The strong entity tag of a version."""
    return f'"{version}"'


def holds(headers: Headers, entity_tag: str) -> bool:
    """Whether the caller has the answer with this tag already (``If-None-Match``)."""
    return entity_tag in _tags(headers.get("if-none-match", ""))


def unless_held(headers: Headers, send: Send) -> Send:
    """Sends status 304 in place of an answer that the caller has already."""
    is_held = False

    async def send_changed(message: Message) -> None:
        nonlocal is_held
        if message["type"] == "http.response.start" and message["status"] == _OK:
            pairs = [(name.lower(), value) for name, value in message["headers"]]
            entity_tag = dict(pairs).get(b"etag", b"").decode("latin-1")
            if is_held := bool(entity_tag) and holds(headers, entity_tag):
                await not_modified(send, [pair for pair in pairs if pair[0] in _KEPT])
        if not is_held:
            await send(message)

    return send_changed


async def not_modified(send: Send, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """Answers that the caller's copy is still right."""
    await send({"type": "http.response.start", "status": _NOT_MODIFIED, "headers": headers or []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _tags(header: str) -> list[str]:
    return [one.strip() for one in header.split(",") if one.strip()]
