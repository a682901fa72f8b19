"""Kind ``http``: figures from a JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Meta

from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.reported import look_of
from penstock.metrics.sources.requests import Requests
from penstock.metrics.sources.source import Kind, SourceAway, SourceSettings

QUEUE = "{queue}"
JsonPath = Annotated[str, Meta(max_length=500)]
_ABSENT = object()
_MOST_TABLES = 200_000
"""Lists and tables of a document: an empty one has two bytes there, and 64 in memory."""


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where each figure stands: names and indices with dots between them.

    ``queues.{queue}.depth`` is the figure ``depth`` of the queue's table, ``0.depth`` that of a
    list's first item. ``{queue}`` stands for the queue's name, which may hold dots itself.
    """

    waiting: JsonPath
    claimed: JsonPath = ""
    delayed: JsonPath = ""
    oldest_seconds: JsonPath = ""
    arrived: JsonPath = ""
    ended: JsonPath = ""
    epoch: JsonPath = ""


class HttpSource:
    """One request for all queues; one for each where the address names the queue."""

    def __init__(self, settings: SourceSettings) -> None:
        address = urlsplit(settings.url)
        query = f"?{address.query}" if address.query else ""
        self._target = (address.path or "/") + query
        self._requests = Requests(settings)
        self._paths: dict[str, str] = {
            name: path for name, path in msgspec.structs.asdict(settings.options).items() if path
        }

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        if QUEUE not in self._target:
            document = await self._document(self._target)
            return {queue: self._look(document, queue) for queue in queues}
        return {
            queue: self._look(
                await self._document(self._target.replace(QUEUE, quote(queue, safe=""))), queue
            )
            for queue in queues
        }

    async def close(self) -> None:
        await self._requests.close()

    async def _document(self, target: str) -> Any:
        body = await self._requests.get(target)
        if body.count(b"[") + body.count(b"{") > _MOST_TABLES:
            raise SourceAway(f"found a document of more than {_MOST_TABLES} lists and tables")
        try:
            return msgspec.json.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SourceAway(f"expected JSON: {error}") from error

    def _look(self, document: Any, queue: str) -> SourceLook | SourceFault:
        figures = {}
        for name, path in self._paths.items():
            value = _at(document, path, queue)
            if value is _ABSENT:
                return SourceFault(f"found nothing at {path.replace(QUEUE, queue)[:100]!r}")
            figures[name] = str(value) if name == "epoch" else value
        return look_of(figures)


def _at(document: Any, path: str, queue: str) -> Any:
    for step in path.split("."):
        name = step.replace(QUEUE, queue)
        if isinstance(document, dict) and name in document:
            document = document[name]
        elif isinstance(document, list) and name.isdecimal() and int(name) < len(document):
            document = document[int(name)]
        else:
            return _ABSENT
    return document


KIND = Kind(
    open=HttpSource,
    schemes=("http", "https"),
    options=HttpOptions,
    counts_arrivals=lambda options: bool(options.arrived or options.ended),
    tells_queues_apart=lambda url, options: QUEUE in url or QUEUE in options.waiting,
)
