"""The queues that a pattern names, summed as if they were one queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import msgspec

from penstock.metrics.core.sources.look import AnyLook, SourceFault, SourceLook

_SHOWN = 100
"""Characters of a queue's name in a fault: the other system may allow names of any length."""


class Summed(NamedTuple):
    """What a pattern's queues hold together.

    ``look``: None until their names were read. ``fault``: why some of them cannot be looked at;
    their last looks stand in the sum, and ``behind_seconds`` of it is the age of the oldest.
    """

    look: SourceLook | None
    fault: str


class _Member(msgspec.Struct):
    """A queue: its last look, and when that was; the time of its first listing before one."""

    at: float
    look: SourceLook | None = None


class PatternSum:
    """One pattern's queues, look by look.

    The counters of the sum grow by what those of each queue grow, so that they survive queues that
    come, go, and begin to count anew. What a new queue holds came since the names were read last.

    Attributes:
        pattern: as the pool names it.

    Args:
        pattern: a name with wildcards.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._members: dict[str, _Member] = {}
        self._is_listed, self._surplus = False, ""
        self._is_summed = False
        self._counts = {"arrived": 0, "ended": 0}
        self._listed_faults: frozenset[str] = frozenset()

    @property
    def names(self) -> Collection[str]:
        """The queues that there were when the names were read last."""
        return self._members.keys()

    def set_names(self, names: Collection[str], now: float, surplus: str = "") -> None:
        """The names were read; those that are gone end.

        Args:
            names: of all queues that the pattern names.
            surplus: why there are more than these; empty where there are not.
        """
        kept = {name: self._members.get(name) or _Member(now) for name in names}
        self._members, self._is_listed, self._surplus = kept, True, surplus

    def unlisted_faults(self, looks: Mapping[str, AnyLook | SourceFault]) -> bool:
        """Some queues cannot be looked at that could be before: perhaps they are gone."""
        return not self._faulty(looks) <= self._listed_faults

    def confirm_faults(self, looks: Mapping[str, AnyLook | SourceFault]) -> None:
        """The names were read since: those that cannot be looked at do exist."""
        self._listed_faults = self._faulty(looks)

    def sum(self, looks: Mapping[str, AnyLook | SourceFault], now: float) -> Summed:
        """The queues were looked at.

        Args:
            looks: by queue.
            now: of a steady clock.
        """
        if not self._is_listed:
            return Summed(None, "")
        faults = [name for name in self._faulty(looks) if name in self._listed_faults]
        self._listed_faults = frozenset(faults)
        for name, member in self._members.items():
            look = looks.get(name)
            if isinstance(look, SourceLook):
                self._count(member.look, look)
                member.look, member.at = look, now - look.behind_seconds
        self._is_summed = True
        return Summed(self._look(now), self._fault(sorted(faults), looks))

    def _faulty(self, looks: Mapping[str, AnyLook | SourceFault]) -> frozenset[str]:
        return frozenset(name for name in self._members if isinstance(looks.get(name), SourceFault))

    def _count(self, before: SourceLook | None, look: SourceLook) -> None:
        if before is None:
            if self._is_summed:
                self._counts["arrived"] += look.waiting + (look.claimed or 0)
            return
        if before.epoch == look.epoch:
            for name in self._counts:
                self._counts[name] += max(_growth(getattr(before, name), getattr(look, name)), 0)

    def _look(self, now: float) -> SourceLook:
        looks = [member.look for member in self._members.values() if member.look]
        behind = max((now - member.at for member in self._members.values()), default=0.0)
        return SourceLook(
            waiting=sum(look.waiting for look in looks),
            claimed=_total(look.claimed for look in looks),
            delayed=_total(look.delayed for look in looks),
            oldest_seconds=_oldest(looks),
            arrived=self._counter("arrived", looks),
            ended=self._counter("ended", looks),
            behind_seconds=max(behind, 0.0),
            exact=not self._surplus and all(look.exact for look in looks),
            misses_ends=any(look.misses_ends for look in looks),
            stuck=sum(look.stuck for look in looks),
            cap=_total(look.cap for look in looks) if looks else None,
        )

    def _counter(self, name: str, looks: list[SourceLook]) -> int | None:
        if any(getattr(look, name) is None for look in looks):
            return None
        return self._counts[name]

    def _fault(self, names: list[str], looks: Mapping[str, AnyLook | SourceFault]) -> str:
        if not names:
            return self._surplus
        fault = looks[names[0]]
        text = fault.text if isinstance(fault, SourceFault) else ""
        return f"{len(names)} of {len(self._members)} queues, e.g. {names[0][:_SHOWN]!r}: {text}"


def _total(counts: Iterator[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _oldest(looks: list[SourceLook]) -> float | None:
    """The largest age of a queue in which messages wait; one unknown age makes it unknown."""
    ages = [look.oldest_seconds for look in looks if look.waiting]
    if None in ages:
        return None
    return max(filter(None, ages), default=0.0)


def _growth(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else after - before
