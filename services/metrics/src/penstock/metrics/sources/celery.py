"""Kind ``celery``: queues of Celery in Redis, as Kombu stores them.

A queue is a list for each priority, the highest first: ``mail``, ``mail\\x06\\x163`` and so on.
What workers took and have not acknowledged is in one hash for all queues, ``unacked``; tasks with a
later ETA are there, too. Kombu keeps no time of arrival and no count of what ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.config.source_patterns import matches
from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.claim_ids import ClaimIds
from penstock.metrics.sources.redis_client import (
    SCHEMES,
    Command,
    RedisClient,
    RefusedCommand,
)
from penstock.metrics.sources.source import MOST_NAMES, Kind, SourceAway, SourceSettings

_SEPARATOR = "\x06\x16"
_BINDINGS = "_kombu.binding."
"""Of an exchange: the queues that are bound to it, behind routing key and pattern."""
_REMOTE_CONTROL = frozenset({"celeryev", "celery.pidbox", "reply.celery.pidbox"})
"""Exchanges of events and control messages, whose queues hold no tasks."""
_MOST_UNACKED = 1_000
"""Of more messages it is not read which queue each came from."""


class CeleryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``broker_transport_options`` of the Celery application says, where it says it."""

    priority_steps: Annotated[tuple[int, ...], Meta(min_length=1, max_length=10)] = (0, 3, 6, 9)
    global_keyprefix: Annotated[str, Meta(max_length=200)] = ""
    unacked_key: Annotated[str, Meta(min_length=1, max_length=200)] = "unacked"


class _Message(msgspec.Struct):
    headers: dict[str, Any] = {}


class CelerySource:
    """Two reads a look, over one connection."""

    def __init__(self, settings: SourceSettings) -> None:
        self._options: CeleryOptions = settings.options
        self._redis = RedisClient(settings)
        self._unacked = self._options.global_keyprefix + self._options.unacked_key
        self._decoder = msgspec.json.Decoder(tuple[_Message, str | None, str])
        self._claims = ClaimIds()

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        [count] = await self._redis.read([("HLEN", self._unacked)])
        if isinstance(count, RefusedCommand):
            raise SourceAway(f"{self._unacked}: {count}")
        is_small = count <= _MOST_UNACKED
        commands: list[Command] = [
            ("LLEN", key) for queue in queues for key in self._lists_of(queue)
        ]
        if is_small:
            commands.append(("HGETALL", self._unacked))
        steps = len(self._options.priority_steps)
        answers = await self._redis.read(commands, together=steps)
        unacked = _pairs(answers.pop()) if is_small else None
        lengths = (answers[nth * steps : (nth + 1) * steps] for nth in range(len(queues)))
        if unacked is None:
            return {
                queue: _look(depths, None, None, None)
                for queue, depths in zip(queues, lengths, strict=True)
            }
        claimed, delayed = self._by_queue(unacked)
        self._claims.keep(queues)
        looks = {}
        for queue, depths in zip(queues, lengths, strict=True):
            tags = claimed.get(queue, set())
            ended = self._claims.ended(queue, tags)
            looks[queue] = _look(depths, len(tags), delayed[queue], ended)
        return looks

    async def names(self, pattern: str) -> Sequence[str]:
        """Of the bindings, which are there also while a queue is empty and has no key."""
        prefix = f"{self._options.global_keyprefix}{_BINDINGS}"
        exchanges = await self._redis.scan(prefix, "*", "set")
        members: list[Command] = [
            ("SRANDMEMBER", prefix + exchange, MOST_NAMES + 1)
            for exchange in exchanges
            if exchange not in _REMOTE_CONTROL
        ]
        names: dict[str, None] = {}
        for bindings in await self._redis.read(members, together=1):
            for binding in () if isinstance(bindings, RefusedCommand) else bindings:
                name = binding.decode("utf-8", "replace").rpartition(_SEPARATOR)[2]
                if matches(pattern, name):
                    names[name] = None
        return list(names)

    async def close(self) -> None:
        await self._redis.close()

    def _lists_of(self, queue: str) -> list[str]:
        prefix = self._options.global_keyprefix
        return [
            f"{prefix}{queue}{_SEPARATOR}{step}" if step else f"{prefix}{queue}"
            for step in self._options.priority_steps
        ]

    def _by_queue(
        self, unacked: Mapping[bytes, bytes]
    ) -> tuple[dict[str, set[bytes]], Counter[str]]:
        """Delivery tags in work, and how many wait in workers for their ETA."""
        claimed: dict[str, set[bytes]] = {}
        delayed: Counter[str] = Counter()
        now = datetime.now(UTC)
        for tag, stored in unacked.items():
            try:
                message, _, queue = self._decoder.decode(stored)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                continue  # of another program; it is in none of these queues
            if _is_due(message.headers.get("eta"), now):
                claimed.setdefault(queue, set()).add(tag)
            else:
                delayed[queue] += 1
        return claimed, delayed


def _look(
    depths: Sequence[Any], claimed: int | None, delayed: int | None, ended: int | None
) -> SourceLook | SourceFault:
    if refused := next((depth for depth in depths if isinstance(depth, RefusedCommand)), None):
        return SourceFault(str(refused))
    return SourceLook(
        waiting=sum(depths),
        claimed=claimed,
        delayed=delayed,
        ended=ended,
        exact=False,
        misses_ends=True,
    )


def _pairs(answer: Any) -> dict[bytes, bytes]:
    if isinstance(answer, RefusedCommand):
        raise SourceAway(str(answer))
    return (
        dict(answer)
        if isinstance(answer, Mapping)
        else dict(zip(answer[::2], answer[1::2], strict=True))
    )


def _is_due(eta: Any, now: datetime) -> bool:
    if not isinstance(eta, str):
        return True
    try:
        time = datetime.fromisoformat(eta)
    except ValueError:
        return True
    return (time if time.tzinfo else time.replace(tzinfo=UTC)) <= now


KIND = Kind(
    open=CelerySource,
    schemes=SCHEMES,
    options=CeleryOptions,
    counts_arrivals=lambda _: False,
    lists_queues=lambda _: True,
)
