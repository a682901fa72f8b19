"""Kind ``rq``: queues of RQ in Redis.

Job ids wait in a list, are for a moment in a list ``…:intermediate``, and are in a sorted set
``rq:wip:…`` while a worker runs them. Each job's hash has the time at which it was enqueued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.metrics.core.sources.look import SourceFault, SourceLook, age_of
from penstock.metrics.sources.claim_ids import ClaimIds
from penstock.metrics.sources.redis_client import (
    SCHEMES,
    Command,
    RedisClient,
    RefusedCommand,
)
from penstock.metrics.sources.source import Kind, SourceSettings

_MOST_RUNNING = 1_000


class RqOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What RQ puts before its keys."""

    prefix: Annotated[str, Meta(min_length=1, max_length=200)] = "rq"


class _Answers(msgspec.Struct, frozen=True):
    """What the server answered of one queue, in the order of `RqSource._commands_of`."""

    exists: int
    waiting: int
    intermediate: int
    running: list[bytes]
    scheduled: int
    head: bytes | None


class RqSource:
    """Two reads a look, over one connection."""

    def __init__(self, settings: SourceSettings) -> None:
        self._prefix: str = settings.options.prefix
        self._redis = RedisClient(settings)
        self._claims = ClaimIds()

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        commands: list[Command] = []
        for queue in queues:
            commands += self._commands_of(queue)
        size = len(_Answers.__struct_fields__)
        answers = await self._redis.read(commands, together=size)
        by_queue = {
            queue: _checked(queue, answers[nth * size : (nth + 1) * size])
            for nth, queue in enumerate(queues)
        }
        ages = await self._ages(by_queue)
        self._claims.keep(queues)
        return {
            queue: figures if isinstance(figures, SourceFault) else self._look(queue, figures, ages)
            for queue, figures in by_queue.items()
        }

    async def names(self, pattern: str) -> Sequence[str]:
        return await self._redis.members(
            f"{self._prefix}:queues", f"{self._prefix}:queue:", pattern
        )

    async def close(self) -> None:
        await self._redis.close()

    def _commands_of(self, queue: str) -> list[Command]:
        prefix, key = self._prefix, f"{self._prefix}:queue:{queue}"
        return [
            ("SISMEMBER", f"{prefix}:queues", key),
            ("LLEN", key),
            ("LLEN", f"{key}:intermediate"),
            ("ZRANGE", f"{prefix}:wip:{queue}", 0, _MOST_RUNNING),
            ("ZCARD", f"{prefix}:scheduled:{queue}"),
            ("LINDEX", key, 0),
        ]

    async def _ages(self, by_queue: Mapping[str, _Answers | SourceFault]) -> dict[str, float]:
        heads = {
            queue: figures.head
            for queue, figures in by_queue.items()
            if isinstance(figures, _Answers) and figures.head is not None
        }
        if not heads:
            return {}
        prefix = f"{self._prefix}:job:".encode()
        times: list[Command] = [("HGET", prefix + job, "enqueued_at") for job in heads.values()]
        (seconds, micros), *answers = await self._redis.read([("TIME",), *times], together=1)
        now = int(seconds) + int(micros) / 1e6
        moments = {queue: _moment(answer) for queue, answer in zip(heads, answers, strict=True)}
        ages = {queue: age_of(now - at) for queue, at in moments.items() if at is not None}
        return {queue: age for queue, age in ages.items() if age is not None}

    def _look(self, queue: str, answers: _Answers, ages: Mapping[str, float]) -> SourceLook:
        is_known = len(answers.running) <= _MOST_RUNNING
        return SourceLook(
            waiting=answers.waiting,
            claimed=answers.intermediate + len(answers.running) if is_known else None,
            delayed=answers.scheduled,
            oldest_seconds=ages.get(queue) if answers.waiting else 0.0,
            ended=self._claims.ended(queue, answers.running) if is_known else None,
            exact=False,
            misses_ends=True,
        )


def _checked(queue: str, answers: Sequence[Any]) -> _Answers | SourceFault:
    if refused := next((one for one in answers if isinstance(one, RefusedCommand)), None):
        return SourceFault(f"queue {queue!r}: {refused}")
    figures = _Answers(*answers)
    if not (figures.exists or figures.waiting):
        return SourceFault(f"RQ has no queue {queue!r}")
    return figures


def _moment(text: Any) -> float | None:
    """POSIX seconds of RQ's text of a time in UTC; None where there is none."""
    if not isinstance(text, bytes):
        return None
    try:
        time = datetime.fromisoformat(text.decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


KIND = Kind(
    open=RqSource,
    schemes=SCHEMES,
    options=RqOptions,
    counts_arrivals=lambda _: False,
    lists_queues=lambda _: True,
)
