"""Work that is of use only while the client waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from litestar import Request
from litestar.exceptions import HTTPException
from litestar.types import Receive

T = TypeVar("T")

CLIENT_GONE = 499
"""No client sees it; it stands in the audit log."""


async def while_connected(request: Request[Any, Any, Any], work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled when the client closes its connection.

    Raises:
        HTTPException: the client is gone.
    """
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_closed(request.receive))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise HTTPException("the client closed its connection", status_code=CLIENT_GONE)
    finally:
        leaving.cancel()
        doing.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)


async def _until_closed(receive: Receive) -> None:
    """Returns when the client is gone; never where the server cannot report that."""
    bodies = 0
    while bodies <= 1:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        bodies += not message.get("more_body", False)
    # A body that was read before, and is given again and again: of a request with a key.
    await asyncio.Event().wait()
