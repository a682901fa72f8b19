"""Kind ``sidekiq``: queues of Sidekiq in Redis.

A queue is a list ``queue:NAME``, the newest first, whose jobs name when they were enqueued; the set
``queues`` has their names. Jobs for later are in the sorted sets ``schedule`` and ``retry`` of all
queues. Each process states in ``IDENTITY:work`` every ten seconds what its threads do: of what
began since, it is not known that it is in work. Read in ``lib/sidekiq/client.rb``, ``launcher.rb``
and ``processor.rb`` of sidekiq/sidekiq.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.metrics.core.sources.look import SourceFault, SourceLook, age_of
from penstock.metrics.sources.redis_client import (
    SCHEMES,
    Command,
    RedisClient,
    RefusedCommand,
)
from penstock.metrics.sources.source import Kind, SourceAway, SourceSettings

_MOST_LATER = 1_000
"""Of more jobs for later it is not read which queue each is for."""
_MOST_PROCESSES = 1_000
_MILLISECONDS_FROM = 1e11
"""Sidekiq 8 has times in milliseconds; in seconds this one is in the year 5138."""
_PREFIX = "queue:"


class SidekiqOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the source is to know of the installation.

    Attributes:
        one_queue: the installation has one queue only, so that its count of processed jobs, which
            is one for all queues, is that of this queue.
    """

    one_queue: bool = False


class _Work(msgspec.Struct):
    """A job, or what a thread states of the one that it runs."""

    queue: str = ""
    enqueued_at: float | None = None


class SidekiqSource:
    """Two reads a look, over one connection."""

    def __init__(self, settings: SourceSettings) -> None:
        self._one_queue: bool = settings.options.one_queue
        self._redis = RedisClient(settings)
        self._decoder = msgspec.json.Decoder(_Work)
        self._arrived = self._processed = self._epoch = 0

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        if self._one_queue and len(queues) > 1:
            raise SourceAway(f"options.one_queue is set, but pools name {len(queues)} queues")
        processes, scheduled, retried = await self._whole(
            ("SRANDMEMBER", "processes", _MOST_PROCESSES + 1),
            ("ZCARD", "schedule"),
            ("ZCARD", "retry"),
        )
        later: list[Command] = []
        if scheduled + retried <= _MOST_LATER:
            later = [("ZRANGE", name, 0, _MOST_LATER) for name in ("schedule", "retry")]
        works: list[Command] = []
        if len(processes) <= _MOST_PROCESSES:
            works = [("HVALS", bytes(process) + b":work") for process in processes]
        per_queue = [command for queue in queues for command in _commands_of(queue)]
        answers = await self._redis.read(
            [*per_queue, *later, *works, ("GET", "stat:processed"), ("TIME",)], together=3
        )
        seconds, micros = _checked(answers.pop())
        processed = int(_checked(answers.pop()) or 0)
        delayed = self._by_queue(answers[len(per_queue) : len(per_queue) + len(later)])
        claimed = self._by_queue(answers[len(per_queue) + len(later) :])
        looks: dict[str, SourceLook | SourceFault] = {}
        for nth, queue in enumerate(queues):
            look = self._look(
                queue,
                answers[3 * nth : 3 * nth + 3],
                claimed[queue] if len(processes) <= _MOST_PROCESSES else None,
                delayed[queue] if later else None,
                int(seconds) + int(micros) / 1e6,
            )
            if self._one_queue and isinstance(look, SourceLook):
                look = self._with_counters(look, processed)
            looks[queue] = look
        return looks

    async def names(self, pattern: str) -> Sequence[str]:
        return await self._redis.members("queues", "", pattern)

    async def close(self) -> None:
        await self._redis.close()

    async def _whole(self, *commands: Command) -> list[Any]:
        return [_checked(answer) for answer in await self._redis.read(commands)]

    def _by_queue(self, answers: Sequence[Any]) -> Counter[str]:
        """How many of the jobs, or of what threads state, are of each queue."""
        counts: Counter[str] = Counter()
        for answer in answers:
            for text in () if isinstance(answer, RefusedCommand) else answer:
                work = self._decoded(text)
                counts[work.queue.removeprefix(_PREFIX)] += 1
        return counts

    def _decoded(self, text: bytes) -> _Work:
        try:
            return self._decoder.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return _Work()  # of another program; it is in none of these queues

    def _look(
        self,
        queue: str,
        answers: Sequence[Any],
        claimed: int | None,
        delayed: int | None,
        now: float,
    ) -> SourceLook | SourceFault:
        if refused := next((one for one in answers if isinstance(one, RefusedCommand)), None):
            return SourceFault(f"queue {queue!r}: {refused}")
        exists, waiting, oldest = answers
        if not (exists or waiting):
            return SourceFault(f"Sidekiq has no queue {queue!r}")
        return SourceLook(
            waiting=waiting,
            claimed=claimed,
            delayed=delayed,
            oldest_seconds=self._age(oldest, now) if waiting else 0.0,
            exact=False,
        )

    def _age(self, oldest: bytes | None, now: float) -> float | None:
        at = self._decoded(oldest).enqueued_at if oldest else None
        if at is None:
            return None
        return age_of(now - (at / 1000 if at >= _MILLISECONDS_FROM else at))

    def _with_counters(self, look: SourceLook, processed: int) -> SourceLook:
        """The look with the counters of an installation that has this queue only.

        Processes report every ten seconds what they took and ended: until then a job is in no
        count, and would seem to come anew with the report. The largest sum so far has no such dips.
        """
        if processed < self._processed:
            self._epoch, self._arrived = self._epoch + 1, 0
        self._processed = processed
        self._arrived = max(self._arrived, look.waiting + (look.claimed or 0) + processed)
        return msgspec.structs.replace(
            look, arrived=self._arrived, ended=processed, epoch=str(self._epoch)
        )


def _commands_of(queue: str) -> list[Command]:
    key = _PREFIX + queue
    return [("SISMEMBER", "queues", queue), ("LLEN", key), ("LINDEX", key, -1)]


def _checked(answer: Any) -> Any:
    if isinstance(answer, RefusedCommand):
        raise SourceAway(str(answer))
    return answer


KIND = Kind(
    open=SidekiqSource,
    schemes=SCHEMES,
    options=SidekiqOptions,
    counts_arrivals=lambda options: bool(options.one_queue),
    lists_queues=lambda options: not options.one_queue,
)
