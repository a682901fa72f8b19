"""HTTP as aiobotocore needs it, with bounded answers and without redirects. Needs aiobotocore."""

from __future__ import annotations

from typing import Any

from aiobotocore.httpsession import AIOHTTPSession
from aiohttp import ClientError
from botocore.exceptions import HTTPClientError

MOST_BYTES = 1_000_000
"""Of one answer, which has some hundred bytes; aiobotocore reads any size."""


class AnswerTooLarge(HTTPClientError):  # type: ignore[misc]
    """An answer that is not read to its end."""

    fmt = "the server answered with more than {most} bytes"


class BoundedSession(AIOHTTPSession):  # type: ignore[misc]  # it has no types
    """Reads an answer part by part, and gives up one that is too large."""

    async def send(self, request: Any) -> Any:
        """As aiobotocore.

        Raises:
            AnswerTooLarge: more than ``MOST_BYTES`` came.
            HTTPClientError: the connection broke.
        """
        request.stream_output = True  # the answer's body is left to us
        response = await super().send(request)
        parts, size = [], 0
        try:
            async for part in response.raw.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > MOST_BYTES:
                    raise AnswerTooLarge(most=MOST_BYTES)
        except ClientError as error:
            raise HTTPClientError(error=error) from error
        finally:
            response.raw.close()  # one that was read to its end has given its connection back
        response._content = b"".join(parts)
        return response

    async def _get_session(self, proxy_url: str | None) -> Any:
        return _WithoutRedirects(await super()._get_session(proxy_url))


class _WithoutRedirects:
    """As much of an `aiohttp.ClientSession` as aiobotocore uses for a request."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def request(self, *args: Any, **options: Any) -> Any:
        return self._session.request(*args, allow_redirects=False, **options)
