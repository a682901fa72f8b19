"""A queue of another system between looks, as a pool's meter reads it."""

from __future__ import annotations

from itertools import repeat

import msgspec

from penstock.events.worker import QueueReport
from penstock.metrics.core.line import PLACES
from penstock.metrics.core.queue import Head, Look, Queue
from penstock.metrics.core.sketches import serialized
from penstock.metrics.core.sources.arrivals import Arrivals, arrivals
from penstock.metrics.core.sources.look import SourceLook
from penstock.metrics.core.sources.shadow_line import ShadowLine
from penstock.metrics.core.sources.stuck import StuckWatch

_MOST_SAMPLES = 200
"""Durations of one look that go into a distribution."""


class SourceQueue(Queue):
    """What is known of one queue, look by look.

    Attributes:
        estimated: fields of a pool's snapshot that were worked out, not read from the system.
        stuck: messages that wait and are not counted, because no worker ever takes them.
        fault: why the last look failed; empty where it did not.

    Args:
        name: of the queue in its system.
        sla_seconds: a message that waits longer is late.
        runtime_seconds: of one message, as the settings have it: where neither the system nor the
            workers count ends, so many messages ended as those in work had time for.
    """

    __slots__ = (
        "_busy_seconds",
        "_came",
        "_ended",
        "_latest",
        "_line",
        "_reported",
        "_runtime_seconds",
        "_sla_seconds",
        "_stuck_watch",
        "_worked_seconds",
        "estimated",
        "fault",
        "stuck",
    )

    def __init__(self, name: str, sla_seconds: float, runtime_seconds: float | None = None) -> None:
        super().__init__(name)
        self.estimated: frozenset[str] = frozenset()
        self.stuck, self.fault = 0, ""
        self._sla_seconds, self._runtime_seconds = sla_seconds, runtime_seconds
        self._worked_seconds = 0.0
        self._latest: SourceLook | None = None
        self._line: ShadowLine | None = None
        self._stuck_watch = StuckWatch(runtime_seconds)
        self._came: int | None = None
        self._reported: int | None = None
        self._busy_seconds, self._ended = 0.0, 0

    # --- taking in -------------------------------------------------------------------------------
    def report_ended(self, count: int) -> None:
        """Workers reported that so many messages ended."""
        self._reported = (self._reported or 0) + max(count, 0)

    def see_source(
        self,
        look: SourceLook,
        now: float,
        wall_now: float,
        idle_workers: int,
        busy_slots: int | None,
    ) -> QueueReport:
        """The system was looked at.

        Args:
            look: what was found.
            now: of a steady clock; ``wall_now``: the same instant in POSIX seconds.
            idle_workers: workers of the pool that are ready and have no message.
            busy_slots: at most so many of the claimed messages run; None where workers report
                their run times themselves.

        Returns:
            What was done since the look before.
        """
        claimed, look = look.claimed, _with_claims_of_now(look, busy_slots)
        at = now - look.behind_seconds
        before, last_at = self._latest, self.look.at if self.look else at
        ends = self._reported
        if ends is None and (look.ended is None or look.misses_ends):
            ends = self._ends_in(at - last_at, look.claimed, busy_slots)
        moved = None if before is None else arrivals(before, look, ends)
        self._latest, self._reported = look, None if self._reported is None else 0
        departed = self._move_line(look, at, moved)
        is_moving = moved is None or bool(moved.came or moved.ended or departed)
        watched = self._stuck_watch.observe(look.waiting, claimed, is_moving, idle_workers, now)
        self.stuck = max(watched, min(look.stuck, look.waiting))
        self.delayed = look.delayed
        self._put(look, at, wall_now - (now - at), moved)
        return self._report(look, last_at, at, moved, departed, busy_slots)

    def _ends_in(self, seconds: float, claimed: int | None, busy_slots: int | None) -> int | None:
        """About how many messages ended, by how long one takes; None where that is not set."""
        if self._runtime_seconds is None or claimed is None or busy_slots is None:
            return None
        self._worked_seconds += min(claimed, busy_slots) * seconds
        ends = int(self._worked_seconds / self._runtime_seconds)
        self._worked_seconds -= ends * self._runtime_seconds
        return ends

    def _move_line(self, look: SourceLook, at: float, moved: Arrivals | None) -> int:
        if self._line is None or moved is None:
            self._line = ShadowLine(at, look.waiting)
            return 0
        return self._line.move(at, moved.came, look.waiting)

    def _put(self, look: SourceLook, at: float, wall_at: float, moved: Arrivals | None) -> None:
        waiting = look.waiting - self.stuck
        self.before = self.look
        self.look = Look(
            at=at, waiting=waiting, claimed=look.claimed or 0, delivered=0, delivered_sequence=0
        )
        self._came = None if moved is None or self._came is None else self._came + moved.came
        oldest = look.oldest_seconds
        estimated = set() if look.exact or look.late_counters else {"waiting"}
        if not look.exact or look.claimed is None:
            estimated.add("running")
        if moved is not None and not moved.exact:
            estimated.add("arrival_per_second")
        if self._reported is None and (not look.exact or look.ended is None):
            estimated |= {"ended", "throughput_per_second"}
        if oldest is None and self._line is not None and waiting:
            oldest = self._line.age_seconds(0, at)
            estimated.add("oldest_waiting_seconds")
        self.head = Head(at, 0, wall_at - (oldest or 0.0))
        # Who started late, and after how long, is never read: it follows from the line.
        self.estimated = frozenset(estimated | {"pickup", "budget"})

    def _report(
        self,
        look: SourceLook,
        start: float,
        at: float,
        moved: Arrivals | None,
        departed: int,
        busy_slots: int | None,
    ) -> QueueReport:
        waits = self._line.waits(departed, (start + at) / 2, _MOST_SAMPLES) if self._line else []
        late = sum(wait > self._sla_seconds for wait in waits)
        ended = 0 if moved is None else departed if moved.ended is None else moved.ended
        runs, run_seconds = self._runs(look.claimed, busy_slots, at - start, ended)
        return QueueReport(
            started=departed,
            late=round(late * departed / len(waits)) if waits else 0,
            finished=ended,
            pickup_sketch=serialized(waits),
            pickup_sum_seconds=sum(waits),
            service_sketch=serialized(repeat(run_seconds, runs)),
            service_sum_seconds=run_seconds * runs,
            service_sum_squares=run_seconds * run_seconds * runs,
        )

    def _runs(
        self, claimed: int | None, busy_slots: int | None, seconds: float, ended: int
    ) -> tuple[int, float]:
        """How many messages ended, and their mean run time, as far as that is known.

        By Little's law: mean time in work = messages in work * time / messages that ended.
        """
        if claimed is None or busy_slots is None:
            return 0, 0.0
        self._busy_seconds += min(claimed, busy_slots) * seconds
        self._ended += ended
        if not (self._ended and self._busy_seconds > 0):  # none was in work just at a look
            return 0, 0.0
        mean_seconds = self._busy_seconds / self._ended
        runs = min(self._ended, _MOST_SAMPLES)
        self._busy_seconds, self._ended = 0.0, 0
        return runs, mean_seconds

    # --- giving out ------------------------------------------------------------------------------
    @property
    def arrived(self) -> int | None:
        """Messages that came since `settle`, None when unknown."""
        return None if self._came is None else max(self._came, 0)

    @property
    def cap(self) -> int | None:
        """More messages than this are never handled at a time; None where that is not known."""
        return None if self._latest is None else self._latest.cap

    @property
    def counts_claims(self) -> bool:
        """The system reports what is delivered and not acknowledged."""
        return self._latest is not None and self._latest.claimed is not None

    def settle(self) -> None:
        """What came so far was counted; a correction of more than that is still to be."""
        self._came = min(self._came or 0, 0)

    def ages(self, wall_now: float) -> tuple[int, tuple[tuple[int, float], ...]]:
        waiting, oldest = self.look.waiting if self.look else 0, self.oldest_seconds(wall_now)
        if self._line is None or self.look is None or oldest is None or not waiting:
            return waiting, ()
        # The look may be old: what waited then is older now by as much.
        passed = oldest - (self._seen_oldest() or 0.0)
        ages = dict(self._line.ages(self.look.at, PLACES))
        ages_now = {place: age + passed for place, age in ages.items() if place < waiting}
        ages_now[0] = oldest
        return waiting, tuple((place, min(age, oldest)) for place, age in sorted(ages_now.items()))

    def _seen_oldest(self) -> float | None:
        if self._latest is not None and self._latest.oldest_seconds is not None:
            return self._latest.oldest_seconds
        return self._line.age_seconds(0, self.look.at) if self._line and self.look else None


def _with_claims_of_now(look: SourceLook, busy_slots: int | None) -> SourceLook:
    """While messages wait, each worker has one, though late counters do not show it yet.

    Run times would be too short by that just when workers are added: messages in work over ended
    ones.
    """
    if not (look.late_counters and look.waiting and busy_slots):
        return look
    return msgspec.structs.replace(look, claimed=max(look.claimed or 0, busy_slots))
