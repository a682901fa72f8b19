"""Rate limits shared by all hosts: starts are leased from the broker a few at a time."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import msgspec

from penstock.bus.clock import BrokerClock
from penstock.bus.protocol import Bus, BusError, Expect, Outgoing, Stored, WrongSequence
from penstock.events.subjects import Subjects
from penstock.jobs.errors import Defer, JobRefused, RateLimitExceeded, Skip
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.middleware import RateLimited
from penstock.jobs.middleware import token as name_of
from penstock.worker.core.rate import Grant, RateState, Rule, ask

_TRIES = 12
_PAUSE_SECONDS = 0.005
_WAIT_SECONDS = 10.0
_AWAY_SECONDS = 1.0
_LAPSED = 3
"""So often a start that came after its life is asked for again."""
_MOST_LOTS = 10_000
_KEPT_SECONDS = 3600


@dataclass(slots=True)
class _Lot:
    """What the broker gave last. Times are seconds of the monotonic clock.

    Attributes:
        want: how many starts to ask for next.
        starts: those left, good until ``until``.
        places: in line, the next one due at ``next_at``, ``spacing`` seconds apart.
    """

    want: int = 1
    given: int = 0
    starts: int = 0
    until: float = 0.0
    places: int = 0
    next_at: float = 0.0
    spacing: float = 0.0


class _TooEarly(Defer):
    """The limit allows no start now."""


class RateLimits:
    """This worker's share of every rate limit. Asked in the job thread.

    Args:
        loop: where the broker is talked to.
    """

    def __init__(self, bus: Bus, subjects: Subjects, loop: asyncio.AbstractEventLoop) -> None:
        self._bus, self._subjects, self._loop = bus, subjects, loop
        self._clock = BrokerClock()
        self._lots: OrderedDict[str, _Lot] = OrderedDict()
        self._guard = threading.Lock()
        self._last_put = (0, 0.0, 0.0)

    @contextmanager
    def gate(self, limit: RateLimited, name: str, key: str) -> Iterator[None]:
        """Raises Defer, Skip or RateLimitExceeded when it is too early; Defer without a broker."""
        try:
            self.admit(limit, name, key)
        except _TooEarly as early:
            match limit.otherwise:
                case "skip":
                    raise Skip(f"rate limit: {_about(limit, key)}") from None
                case "fail":
                    raise RateLimitExceeded(_about(limit, key)) from None
            raise Defer(limit.defer_seconds or early.seconds, early.why) from None
        yield

    def admit(self, limit: RateLimited, name: str, key: str) -> None:
        """Takes one start. Raises Defer when there is none now."""
        rule = Rule(limit.limit, limit.per_seconds, limit.burst or limit.limit, limit.window)
        with self._guard:
            lot = self._lot(name_of(name, key))
            in_line = limit.otherwise == "defer" and not limit.defer_seconds
            for _ in range(_LAPSED):
                if self._take(lot, in_line):
                    return
                self._refill(rule, lot, name_of(name, key))
            if not self._take(lot, in_line):
                raise Defer(rule.spacing_seconds, "the rate-limit slot expired before it arrived")

    def _lot(self, token: str) -> _Lot:
        lot = self._lots.setdefault(token, _Lot())
        self._lots.move_to_end(token)
        if len(self._lots) > _MOST_LOTS:
            self._lots.popitem(last=False)
        return lot

    def _take(self, lot: _Lot, in_line: bool) -> bool:
        """Whether there was a start. Raises _TooEarly when there is a place in line instead.

        Args:
            in_line: takes that place; else it is left to another job.
        """
        now = time.monotonic()
        if lot.starts and now < lot.until:
            lot.starts -= 1
            return True
        if lot.places and now < lot.next_at:
            due = lot.next_at
            if in_line:
                lot.places, lot.next_at = lot.places - 1, due + lot.spacing
            raise _TooEarly(due - now, "rate limit")
        return False

    def _refill(self, rule: Rule, lot: _Lot, token: str) -> None:
        used_all = lot.given > 0 and not lot.starts
        lot.want = min(2 * lot.want if used_all else max(lot.given - lot.starts, 1), 256)
        lot.want = min(lot.want, rule.most_at_once)
        began, now = time.monotonic(), self._clock.now()
        asking = asyncio.run_coroutine_threadsafe(self._ask(rule, lot.want, token), self._loop)
        try:
            grant, now = asking.result(_WAIT_SECONDS)
        except (BusError, JobRefused, TimeoutError) as error:
            raise Defer(_AWAY_SECONDS, f"the rate limit needs the broker: {error}") from error
        lot.given = lot.starts = grant.starts
        lot.until = began + rule.life_seconds
        lot.places, lot.spacing = grant.places, rule.spacing_seconds
        lot.next_at = time.monotonic() + max(grant.again_at - now, rule.spacing_seconds / 2)

    # --- in the loop ------------------------------------------------------------------------------
    async def _ask(self, rule: Rule, want: int, token: str) -> tuple[Grant, float]:
        """The broker's answer and its time then. Raises BusError, JobRefused."""
        stream, subject = self._subjects.keys_stream, self._subjects.key("rate", token)

        async def take(stored: Stored | None) -> tuple[Grant, float] | None:
            if stored is not None and stored.sequence == self._last_put[0]:
                self._clock.learn(stored.at.timestamp(), *self._last_put[1:])
            now = max(self._clock.now(), stored.at.timestamp() if stored else 0.0)
            grant, after = ask(rule, _state(stored.body) if stored else RateState(), want, now)
            sent = time.monotonic()
            try:
                sequence = await self._bus.append(
                    Outgoing(
                        subject,
                        msgspec.msgpack.encode(after),
                        {"Nats-TTL": f"{int(_KEPT_SECONDS + rule.per_seconds)}s"},
                        Expect(stored.sequence if stored else 0),
                    )
                )
            except WrongSequence:  # another worker was first
                await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 - no secret
                return None
            self._last_put = (sequence, sent, time.monotonic())
            return grant, now

        read = partial(self._bus.last, stream, subject)
        return await compare_and_set(read, take, "the rate limit", _TRIES)


def _about(limit: RateLimited, key: str) -> str:
    text = f"more than {limit.limit} starts in {limit.per_seconds:g} s"
    return f"{text} for {key[:100]!r}" if key else text


def _state(body: bytes) -> RateState:
    try:
        return msgspec.msgpack.decode(body, type=RateState)
    except (ValueError, RecursionError):  # not written by a worker: the limit begins anew
        return RateState()
