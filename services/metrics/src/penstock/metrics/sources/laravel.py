"""Kind ``laravel``: queues of Laravel in Redis (Horizon's, too).

A queue is a list ``queues:NAME``, the oldest first. What workers took is in the sorted set
``…:reserved``, what is due later in ``…:delayed``; the key of an empty one is gone. Read in
``src/Illuminate/Queue/RedisQueue.php``, ``LuaScripts.php`` and ``Queue.php`` of laravel/framework.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.config.source_patterns import matches
from penstock.metrics.core.sources.look import SourceFault, SourceLook, age_of
from penstock.metrics.sources.claim_ids import ClaimIds
from penstock.metrics.sources.redis_client import (
    SCHEMES,
    Command,
    RedisClient,
    RefusedCommand,
)
from penstock.metrics.sources.source import MOST_NAMES, Kind, SourceSettings

_MOST_RESERVED = 1_000
_PARTS = ("notify", "reserved", "delayed")
_REMEMBERED_SECONDS = 3600.0


class LaravelOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is before all keys: ``database.redis.options.prefix`` of the application.

    It has no default: with a wrong one every queue would seem to be empty.
    """

    prefix: Annotated[str, Meta(max_length=200)]


class _Answers(msgspec.Struct, frozen=True):
    """What the server answered of one queue, in the order of `LaravelSource._commands_of`."""

    waiting: int
    reserved: list[bytes]
    delayed: int
    overdue: int
    head: bytes | None


class _Payload(msgspec.Struct):
    """``createdAt`` is in payloads of newer versions only."""

    attempts: int = 0
    delay: float | None = None
    createdAt: float | None = None


class LaravelSource:
    """Two reads a look, over one connection."""

    def __init__(self, settings: SourceSettings) -> None:
        self._prefix: str = f"{settings.options.prefix}queues:"
        self._redis = RedisClient(settings)
        self._claims = ClaimIds()
        self._decoder = msgspec.json.Decoder(_Payload)
        self._listed_at: dict[str, float] = {}

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        seconds, micros = await self._redis.answer(("TIME",))
        now = int(seconds) + int(micros) / 1e6
        size = len(_Answers.__struct_fields__)
        commands = [command for queue in queues for command in self._commands_of(queue, now)]
        answers = await self._redis.read(commands, together=size)
        self._claims.keep(queues)
        return {
            queue: self._look(queue, answers[nth * size : (nth + 1) * size], now)
            for nth, queue in enumerate(queues)
        }

    async def names(self, pattern: str) -> Sequence[str]:
        """Of the keys. An empty queue has none, so that names are remembered for an hour."""
        now = time.monotonic()
        keys = [
            *await self._redis.scan(self._prefix, pattern, "list"),
            *await self._redis.scan(self._prefix, f"{pattern}:*", "zset"),
        ]
        self._listed_at |= dict.fromkeys(map(_queue_of, keys), now)
        recent = sorted(self._listed_at.items(), key=lambda item: -item[1])[: MOST_NAMES + 1]
        self._listed_at = {name: at for name, at in recent if now - at < _REMEMBERED_SECONDS}
        return [name for name in self._listed_at if matches(pattern, name)]

    async def close(self) -> None:
        await self._redis.close()

    def _commands_of(self, queue: str, now: float) -> list[Command]:
        key = self._prefix + queue
        return [
            ("LLEN", key),
            ("ZRANGE", f"{key}:reserved", 0, _MOST_RESERVED),
            ("ZCARD", f"{key}:delayed"),
            ("ZCOUNT", f"{key}:delayed", "-inf", int(now)),
            ("LINDEX", key, 0),
        ]

    def _look(self, queue: str, answered: Sequence[Any], now: float) -> SourceLook | SourceFault:
        if refused := next((one for one in answered if isinstance(one, RefusedCommand)), None):
            return SourceFault(f"queue {queue!r}: {refused}")
        answers = _Answers(*answered)
        is_known = len(answers.reserved) <= _MOST_RESERVED
        # A worker moves what is due into the list before it takes one.
        waiting = answers.waiting + answers.overdue
        return SourceLook(
            waiting=waiting,
            claimed=len(answers.reserved) if is_known else None,
            delayed=answers.delayed - answers.overdue,
            oldest_seconds=self._age(answers, now) if waiting else 0.0,
            ended=self._claims.ended(queue, answers.reserved) if is_known else None,
            exact=False,
        )

    def _age(self, answers: _Answers, now: float) -> float | None:
        """Of the first in the list; None where its payload does not say since when it waits."""
        if answers.head is None or answers.overdue:
            return None
        try:
            payload = self._decoder.decode(answers.head)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        if payload.createdAt is None or payload.attempts:  # it was there before, and came back
            return None
        return age_of(now - payload.createdAt - (payload.delay or 0))


def _queue_of(key: str) -> str:
    name, colon, part = key.rpartition(":")
    return name if colon and part in _PARTS else key


KIND = Kind(
    open=LaravelSource,
    schemes=SCHEMES,
    options=LaravelOptions,
    counts_arrivals=lambda _: False,
    lists_queues=lambda _: True,
)
