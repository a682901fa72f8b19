"""The error budget of a promise: jobs started late, over several stretches of its window.

Burn rates over two stretches each, and what may be done with them: *The Site Reliability Workbook*
(Google 2018), ch. 5, "Multiwindow, Multi-Burn-Rate Alerts". Its stretches belong to a month; here
they are shares of the window.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise

from penstock.events.snapshot import Budget

FAST_BURN, SLOW_BURN = 6.0, 2.0
"""Burn rates that spend a quarter of the budget in the short stretch, half of it in the long one:
share of the budget times window over stretch (the workbook's 14.4 is 2 % of a month's in 1 h)."""
_SLOTS = 1440
"""Minutes, where the window is a day."""
_MOST = 2**48
"""No count is larger, whatever a snapshot says."""
_STRETCHES = (5, 30, 60, 360)
"""In slots: those of the burn rates, each with its twelfth."""


class _Ring:
    """Counts by slot, the last `_SLOTS` of them; nothing is allocated before the first."""

    __slots__ = ("_counts", "_slot", "sums")

    def __init__(self) -> None:
        self._counts: array[int] | None = None
        self._slot = 0
        self.sums: tuple[int, ...] = (0,) * (len(_STRETCHES) + 1)

    def add(self, slot: int, count: int) -> None:
        self.go_to(slot)
        if self._counts is None:
            self._counts, self._slot = array("Q", bytes(8 * _SLOTS)), slot
        self._counts[self._slot % _SLOTS] += count
        self.sums = tuple(total + count for total in self.sums)

    def go_to(self, slot: int) -> None:
        """Moves on in time; counts older than the window are dropped."""
        if self._counts is None or slot <= self._slot:
            return
        if not self.sums[-1]:  # all slots are 0, as those of late jobs nearly always are
            self._slot = slot
            return
        for passed in range(min(slot - self._slot, _SLOTS)):
            self._counts[(slot - passed) % _SLOTS] = 0
        self._slot = slot
        self._sum()

    def fill(self, slot: int, counts: Sequence[int]) -> None:
        """More counts, the one of ``slot`` first and then ever older ones."""
        if self._counts is None:
            self._counts, self._slot = array("Q", bytes(8 * _SLOTS)), slot
        for back, count in enumerate(counts):
            if self._slot - _SLOTS < slot - back <= self._slot:
                self._counts[(slot - back) % _SLOTS] += count
        self._sum()

    def _sum(self) -> None:
        counts, here = self._counts or array("Q"), self._slot % _SLOTS + 1
        ordered = counts[here:] + counts[:here]
        self.sums = tuple(sum(ordered[-slots:]) for slots in (*_STRETCHES, _SLOTS))


class Ledger:
    """Jobs started, and started late, over the promise's window. Times are of one steady clock.

    Args:
        sla_seconds: the promised pickup time.
        quantile: the share of jobs that the promise covers.
        window_seconds: over so long a time.
    """

    def __init__(self, sla_seconds: float, quantile: float, window_seconds: float) -> None:
        self.sla_seconds = sla_seconds
        self._quantile, self._window_seconds = quantile, window_seconds
        self._slot_seconds = window_seconds / _SLOTS
        self._jobs, self._late = _Ring(), _Ring()

    def add(self, jobs: int, late: int, now: float) -> None:
        """So many started since the last time, so many of them late."""
        if jobs <= 0:
            return
        slot = int(now // self._slot_seconds)
        self._jobs.add(slot, jobs)
        self._late.add(slot, min(max(late, 0), jobs))

    def budget(self, waiting_late: int, now: float) -> Budget:
        """What is left now; ``waiting_late``: jobs that wait and are late already."""
        slot = int(now // self._slot_seconds)
        self._jobs.go_to(slot)
        self._late.go_to(slot)
        counts = tuple(zip(self._jobs.sums, self._late.sums, strict=True))
        *burns, spent = (self._spent(jobs, late, waiting_late) for jobs, late in counts)
        return Budget(
            sla_seconds=self.sla_seconds,
            quantile=self._quantile,
            window_seconds=self._window_seconds,
            jobs=counts[-1][0],
            late=counts[-1][1],
            waiting_late=waiting_late,
            remaining_share=1.0 - spent,
            burn_rate_short=min(burns[0], burns[2]),
            burn_rate_long=min(burns[1], burns[3]),
            parts=tuple(
                (slots * self._slot_seconds, *counted)
                for slots, counted in zip(_STRETCHES, counts, strict=False)
            ),
        )

    def remember(self, last: Budget | None, at: float) -> None:
        """Goes on from what an earlier process counted until ``at``.

        Counts for another promise are dropped. The times within a stretch are not recorded: its
        counts are spread evenly.
        """
        promise = (self.sla_seconds, self._window_seconds)
        if last is None or (last.sla_seconds, last.window_seconds) != promise:
            return
        if len(last.parts) != len(_STRETCHES):  # of another version
            return
        slot = int(at // self._slot_seconds)
        self._jobs.fill(slot, _unfold([*(jobs for _, jobs, _ in last.parts), last.jobs]))
        self._late.fill(slot, _unfold([*(late for _, _, late in last.parts), last.late]))

    def _spent(self, jobs: int, late: int, waiting_late: int) -> float:
        allowed = (1.0 - self._quantile) * (jobs + waiting_late)
        return (late + waiting_late) / max(allowed, 1.0)


PACES = ("", "slow", "fast", "spent")
"""Paces at which a budget is used up, from best to worst."""


def pace(budget: Budget) -> str:
    """One of `PACES`; ``spent`` only when more jobs were late than may be."""
    if budget.remaining_share < 0:
        return "spent"
    if budget.burn_rate_short >= FAST_BURN:
        return "fast"
    return "slow" if budget.burn_rate_long >= SLOW_BURN else ""


def late_in_line(waiting: int, ages_seconds: Sequence[float], sla_seconds: float) -> int:
    """The number of waiting jobs that are late already.

    Args:
        waiting: jobs in the queue.
        ages_seconds: at evenly spaced places in the queue, the oldest first; from a single one
            nothing follows for the jobs behind it.
        sla_seconds: a job that has waited longer is late.
    """
    late, ages_given = sum(age > sla_seconds for age in ages_seconds), len(ages_seconds)
    if not late or waiting <= ages_given:
        return min(late, waiting)
    if late == ages_given:
        return waiting if ages_given > 1 else 1
    old, young = ages_seconds[late - 1], ages_seconds[late]
    place = late - 1 + (old - sla_seconds) / (old - young)
    return min(int(place * (waiting - 1) / (ages_given - 1)) + 1, waiting)


def _unfold(sums: Sequence[int]) -> list[int]:
    """Counts by slot, the newest first, that give these sums over the stretches and the window."""
    counts: list[int] = []
    for (newer, shorter), (older, longer) in pairwise(
        zip((0, *_STRETCHES, _SLOTS), (0, *sums), strict=True)
    ):
        slots, count = older - newer, min(max(longer - shorter, 0), _MOST)
        counts += (count * (nth + 1) // slots - count * nth // slots for nth in range(slots))
    return counts
