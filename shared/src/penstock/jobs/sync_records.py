"""Schedules and dead letters for code without an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from penstock.jobs.dead_letters.client import ALL, DeadLetters, Outcome
from penstock.jobs.dead_letters.letter import Group, Letter, LetterFilter
from penstock.jobs.job_type import Call
from penstock.jobs.schedules.client import Schedules
from penstock.jobs.schedules.schedule import Schedule

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine in the client's event loop and returns its result."""


class SyncSchedules:
    """See :class:`Schedules`; ``options`` are its keyword arguments."""

    def __init__(self, schedules: Schedules, run: Run) -> None:
        self._schedules, self._run = schedules, run

    def add(self, name: str, call: Call, cron: str, **options: Any) -> Schedule:
        """See :meth:`Schedules.add`."""
        schedule: Schedule = self._run(self._schedules.add(name, call, cron, **options))
        return schedule

    def all(self) -> list[Schedule]:
        """See :meth:`Schedules.all`."""
        schedules: list[Schedule] = self._run(self._schedules.all())
        return schedules

    def get(self, name: str) -> Schedule:
        """See :meth:`Schedules.get`."""
        schedule: Schedule = self._run(self._schedules.get(name))
        return schedule

    def pause(self, name: str) -> Schedule:
        """See :meth:`Schedules.pause`."""
        schedule: Schedule = self._run(self._schedules.pause(name))
        return schedule

    def resume(self, name: str) -> Schedule:
        """See :meth:`Schedules.resume`."""
        schedule: Schedule = self._run(self._schedules.resume(name))
        return schedule

    def run_now(self, name: str) -> str:
        """See :meth:`Schedules.run_now`."""
        job_id: str = self._run(self._schedules.run_now(name))
        return job_id

    def remove(self, name: str) -> None:
        """See :meth:`Schedules.remove`."""
        self._run(self._schedules.remove(name))


class SyncDeadLetters:
    """See :class:`DeadLetters`."""

    def __init__(self, dead: DeadLetters, run: Run) -> None:
        self._dead, self._run = dead, run

    def get(self, job_id: str) -> Letter:
        """See :meth:`DeadLetters.get`."""
        letter: Letter = self._run(self._dead.get(job_id))
        return letter

    def find(self, wanted: LetterFilter = ALL) -> Iterator[Letter]:
        """See :meth:`DeadLetters.find`."""
        return self._drain(self._dead.find(wanted))

    def count(self, wanted: LetterFilter = ALL) -> int:
        """See :meth:`DeadLetters.count`."""
        count: int = self._run(self._dead.count(wanted))
        return count

    def groups(self, wanted: LetterFilter = ALL) -> list[Group]:
        """See :meth:`DeadLetters.groups`."""
        groups: list[Group] = self._run(self._dead.groups(wanted))
        return groups

    def retry(
        self, job_id: str, arguments: Mapping[str, Any] | None = None, reason: str = ""
    ) -> None:
        """See :meth:`DeadLetters.retry`."""
        self._run(self._dead.retry(job_id, arguments, reason))

    def retry_all(
        self, wanted: LetterFilter, arguments: Mapping[str, Any] | None = None, reason: str = ""
    ) -> Iterator[list[Outcome]]:
        """See :meth:`DeadLetters.retry_all`."""
        return self._drain(self._dead.retry_all(wanted, arguments, reason))

    def delete(self, job_id: str, reason: str = "") -> None:
        """See :meth:`DeadLetters.delete`."""
        self._run(self._dead.delete(job_id, reason))

    def delete_all(self, wanted: LetterFilter, reason: str = "") -> Iterator[list[Outcome]]:
        """See :meth:`DeadLetters.delete_all`."""
        return self._drain(self._dead.delete_all(wanted, reason))

    def _drain(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items one by one; the asynchronous iterator is closed when the caller stops early."""

        async def next_item() -> list[T]:
            async for item in items:
                return [item]
            return []

        async def close() -> None:
            if aclose := getattr(items, "aclose", None):
                await aclose()

        try:
            while page := self._run(next_item()):
                yield page[0]
        finally:
            self._run(close())
