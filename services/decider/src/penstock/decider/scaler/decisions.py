"""The newest decision of each pool, followed on the event log, and the streams that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from penstock.bus.protocol import Bus
from penstock.config import Pool
from penstock.decider.core import advised
from penstock.decider.decoding import read, skip
from penstock.events.scaling import SCALING_EVENTS, ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.runtime.poison_messages import skipping_poison

_SHOWN = 3
_MOST_COMPARED = 200
"""Of more names none is suggested: it takes a millisecond for each ten."""
_MOST_POOLS = 10_000
"""Pools beyond those configured here, of which decisions are kept."""


class NoDemand(Exception):
    """There is no number to answer with; says why, and what to do."""


class UnknownPool(NoDemand):
    """Neither the settings nor the log have a pool of this name."""


class NotAdvised(NoDemand):
    """The pool's workers are run by our own executors."""


class Decisions:
    """Answers what a pool demands now.

    Args:
        bus: a connection; its clock gives ages.
        subjects: of the installation.
        pools: those configured here, by name.
        stale_seconds: an older decision is no answer.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, pools: dict[str, Pool], stale_seconds: float
    ) -> None:
        self._bus, self._subjects, self._pools = bus, subjects, pools
        self._stale_seconds = stale_seconds
        self._newest: dict[str, ScalingDecisionMade] = {}
        self._waiting: dict[str, set[asyncio.Event]] = {}

    async def follow(self) -> None:
        """Runs without end."""
        pattern = self._subjects.events("pool", "*", ScalingDecisionMade.__name__)
        async for stored in self._bus.follow(self._subjects.events_stream, [pattern], "last"):
            with skipping_poison(f"{stored.subject}, message {stored.sequence}"):
                made = read(SCALING_EVENTS, stored)
                if not isinstance(made, ScalingDecisionMade):
                    continue
                if self._subjects.event(made) != stored.subject:
                    skip(stored, f"found a decision on {made.pool!r}, expected the subject's")
                else:
                    self.take(made)

    def take(self, made: ScalingDecisionMade) -> None:
        """Keeps a decision, and wakes the streams of its pool."""
        is_new = made.pool not in self._newest and made.pool not in self._pools
        if is_new and len(self._newest) >= _MOST_POOLS + len(self._pools):
            return
        before = self._newest.get(made.pool)
        # of two leaders the one with the higher token is right; after a while the one that speaks,
        # as tokens begin anew with the broker's streams
        if (
            before is None
            or (before.epoch, before.at) <= (made.epoch, made.at)
            or self._age_seconds(before) > self._stale_seconds
        ):
            self._newest[made.pool] = made
            for event in self._waiting.get(made.pool, ()):
                event.set()

    def check(self, pool: str) -> None:
        """Raises UnknownPool or NotAdvised."""
        configured, made = self._pools.get(pool), self._newest.get(pool)
        if configured is None and made is None:
            raise UnknownPool(_unknown(pool, self._pools.keys() | self._newest.keys()))
        advisor = made.advice if made else configured is not None and configured.profile.advisor
        if not advisor:
            raise NotAdvised(
                f"pool {pool!r} is not in advisor mode: executors run its workers, and KEDA would "
                "run them a second time; set advisor = true for the pool"
            )

    def demand(self, pool: str) -> int:
        """Workers that the pool demands now.

        Raises:
            UnknownPool: there is none of this name.
            NotAdvised: executors run its workers.
            NoDemand: no decision, or none that is fit to act on.
        """
        self.check(pool)
        made = self._newest.get(pool)
        if made is None:
            raise NoDemand(f"no decision on pool {pool!r} yet; does a decider run?")
        age = self._age_seconds(made)
        if age > self._stale_seconds:
            raise NoDemand(
                f"the last decision on pool {pool!r} is {age:.0f} s old (more than "
                f"{self._stale_seconds:g} s); does a decider run?"
            )
        workers = advised.demand(made)
        if workers is None:
            why = made.reasons[0].text if made.reasons else "it has no reasons"
            raise NoDemand(f"the last decision on pool {pool!r} is no answer: {why}")
        return workers

    def _age_seconds(self, made: ScalingDecisionMade) -> float:
        return self._bus.now() - made.at.timestamp()

    @contextmanager
    def watched(self, pool: str) -> Iterator[asyncio.Event]:
        """An event that is set at each decision on the pool."""
        changed = asyncio.Event()
        waiting = self._waiting.setdefault(pool, set())
        waiting.add(changed)
        try:
            yield changed
        finally:
            waiting.discard(changed)
            if not waiting and self._waiting.get(pool) is waiting:
                del self._waiting[pool]

    def why_not_ready(self) -> str:
        """A sentence while no pool in advisor mode has an answer; empty else."""
        names = self._pools.keys() | self._newest.keys()
        reasons = []
        for name in sorted(names):
            try:
                self.demand(name)
            except NotAdvised:
                continue
            except NoDemand as error:
                reasons.append(str(error))
            else:
                return ""
        return reasons[0] if reasons else "no pool is in advisor mode"


def _unknown(pool: str, names: Collection[str]) -> str:
    # Anyone may ask, and meanwhile no other caller is answered: not of thousands of names.
    compared = sorted(names) if len(names) <= _MOST_COMPARED else []
    near = get_close_matches(pool, compared, n=_SHOWN)
    hint = f"; did you mean {', '.join(map(repr, near))}?" if near else "; 'penstock pool ls'"
    return f"there is no pool {pool!r}{hint}"
