"""Kind ``redis-stream``: consumer groups of Redis streams. All figures are exact.

What waits is the group's lag, never its pending entries, which consumers have already. The time of
an entry is in its id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.redis_client import (
    SCHEMES,
    Command,
    RedisClient,
    RefusedCommand,
)
from penstock.metrics.sources.source import Kind, SourceSettings

QUEUE = "{queue}"


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The consumer group in each stream; ``{queue}`` in it stands for the stream's name."""

    group: Annotated[str, Meta(min_length=1, max_length=500)]


class StreamSource:
    """Two reads a look, over one connection; a queue is a stream."""

    def __init__(self, settings: SourceSettings) -> None:
        self._group: str = settings.options.group
        self._redis = RedisClient(settings)

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        commands: list[Command] = []
        for queue in queues:
            commands += [("XINFO", "GROUPS", queue), ("XINFO", "STREAM", queue)]
        answers = await self._redis.read(commands, together=2)
        groups = {
            queue: self._group_of(queue, answers[2 * nth], answers[2 * nth + 1])
            for nth, queue in enumerate(queues)
        }
        ages = await self._ages(groups)
        return {
            queue: group if isinstance(group, SourceFault) else _look(group, ages.get(queue))
            for queue, group in groups.items()
        }

    async def names(self, pattern: str) -> Sequence[str]:
        return await self._redis.scan("", pattern, "stream")

    async def close(self) -> None:
        await self._redis.close()

    def _group_of(self, queue: str, groups: Any, stream: Any) -> dict[str, Any] | SourceFault:
        """The group's figures, and those of its stream with ``stream-`` before their names."""
        for answer in (groups, stream):
            if isinstance(answer, RefusedCommand):
                return SourceFault(f"stream {queue!r}: {answer}")
        name = self._group.replace(QUEUE, queue).encode()
        tables = [_table(group) for group in groups]
        group = next((table for table in tables if table["name"] == name), None)
        if group is None:
            return SourceFault(
                f"stream {queue!r} has no consumer group {name.decode()!r}; create it, or set "
                "min_workers = 1 where the pool's consumers do"
            )
        return group | {f"stream-{key}": value for key, value in _table(stream).items()}

    async def _ages(self, groups: Mapping[str, dict[str, Any] | SourceFault]) -> dict[str, float]:
        """Ages of the first entries that no consumer has, by the server's clock."""
        waiting = {
            queue: group["last-delivered-id"]
            for queue, group in groups.items()
            if isinstance(group, dict) and _waiting(group)[0]
        }
        if not waiting:
            return {}
        ranges: list[Command] = [
            ("XRANGE", queue, b"(" + last, "+", "COUNT", 1) for queue, last in waiting.items()
        ]
        (seconds, micros), *answers = await self._redis.read([("TIME",), *ranges], together=1)
        now = int(seconds) + int(micros) / 1e6
        ages = {}
        for queue, entries in zip(waiting, answers, strict=True):
            if entries and not isinstance(entries, RefusedCommand):
                came = int(bytes(entries[0][0]).partition(b"-")[0]) / 1000
                ages[queue] = max(now - came, 0.0)
        return ages


def _look(group: Mapping[str, Any], oldest_seconds: float | None) -> SourceLook:
    waiting, exact = _waiting(group)
    read = group.get("entries-read")
    return SourceLook(
        waiting=waiting,
        claimed=group["pending"],
        oldest_seconds=oldest_seconds if waiting else 0.0,
        arrived=group.get("stream-entries-added"),
        ended=None if read is None else max(read - group["pending"], 0),
        exact=exact,
    )


def _waiting(group: Mapping[str, Any]) -> tuple[int, bool]:
    """Entries that no consumer has, and whether the server counts them.

    It does not after entries were deleted, and for groups that began in the middle of a stream
    (``lag`` is null); the stream's length is as much as there can be.
    """
    lag = group.get("lag")
    if lag is not None:
        return lag, True
    if group["last-delivered-id"] == group["stream-last-generated-id"]:
        return 0, True
    return group["stream-length"], False


def _table(answer: Any) -> dict[str, Any]:
    return {
        bytes(key).decode(): value for key, value in zip(answer[::2], answer[1::2], strict=True)
    }


KIND = Kind(open=StreamSource, schemes=SCHEMES, options=StreamOptions, lists_queues=lambda _: True)
