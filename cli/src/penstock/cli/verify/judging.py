"""From messages to the report: sorts them, then has the rules judge a part at a time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from penstock.bus.protocol import Stored
from penstock.bus.saved_log import Entry
from penstock.cli.verify.saved_events import Progress
from penstock.cli.verify.spool import Spool
from penstock.events.envelope import MalformedEvent
from penstock.events.scaling import SCALING_EVENTS, LeaderChanged, WorkersScaled
from penstock.jobs.errors import BadSchedule
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.schedules import client as schedules
from penstock.jobs.schedules.schedule import Schedule, next_tick
from penstock.verifying.checker import Checker, Extent, Report
from penstock.verifying.rules import Rule, Violation
from penstock.verifying.scaling import TickRecord

_EVENT = re.compile(r".*\.events\.(job|batch|graph|decider)\.([^.]+)\.[^.]+")
_COMMAND = re.compile(r".*\.commands\.[^.]+")
_SCHEDULE = re.compile(r".*\.state\.schedule\.[^.]+")


class Judge:
    """Takes messages in any order of their streams, then judges them.

    Args:
        folder: an empty one, for what does not fit into memory.
        messages: about how many will come.
    """

    def __init__(self, folder: Path, messages: int) -> None:
        self._spool = Spool(folder, messages)
        self._leaders: list[tuple[int, LeaderChanged]] = []
        self._commands: dict[str, list[tuple[int, WorkersScaled]]] = defaultdict(list)
        self._schedules: list[Schedule] = []
        self._unreadable: list[Violation] = []

    def take(self, one: Entry) -> None:
        """A message."""
        at = datetime.fromtimestamp(one.at, UTC)
        stored = Stored(one.subject, one.sequence, at, bytes(one.body))
        match = _EVENT.fullmatch(one.subject)
        if match and match[1] != "decider":
            self._spool.put(match[1], match[2], stored.sequence, stored.subject, stored.body)
        elif match:
            event = read_event(stored, SCALING_EVENTS)
            if isinstance(event, LeaderChanged):
                self._leaders.append((stored.sequence, event))
        elif _COMMAND.fullmatch(one.subject):
            self._take_command(stored)
        elif _SCHEDULE.fullmatch(one.subject):
            self._take_schedule(stored)

    def report(
        self,
        extent: Extent,
        *,
        must_end: bool,
        acknowledged: Collection[str],
        progress: Progress,
    ) -> Report:
        """The verdict on all messages that were taken.

        Args:
            extent: the part of the log that they are.
            must_end: every job has to have ended.
            acknowledged: ids of jobs that have to have ended.
            progress: is called with the share that is judged.
        """
        checker = Checker(extent, must_end=must_end, acknowledged=acknowledged)
        checker.report.add(self._unreadable)
        parts, first = self._spool.parts, extent.judged_from
        for part in range(parts):
            checker.batches(self._spool.batches(part, first))
        for part in range(parts):
            checker.jobs(*self._spool.jobs(part, first))
            progress((part + 1) / parts)
        checker.scaling(self._leaders, self._commands)
        checker.schedules(map(_tick_record, self._schedules))
        return checker.finish()

    def close(self) -> None:
        self._spool.close()

    def _take_command(self, stored: Stored) -> None:
        try:
            command = SCALING_EVENTS.decode(stored.body)
        except MalformedEvent as error:
            self._take_unreadable(stored, str(error))
        else:
            if isinstance(command, WorkersScaled):
                self._commands[command.host].append((stored.sequence, command))

    def _take_schedule(self, stored: Stored) -> None:
        try:
            record = schedules.read(stored)
            next_tick(record, record.made_at)
        except (BadSchedule, ValueError, RecursionError, OverflowError) as error:
            self._take_unreadable(stored, str(error))
        else:
            if not record.removed:
                self._schedules.append(record)

    def _take_unreadable(self, stored: Stored, reason: str) -> None:
        violation = Violation(
            rule=Rule.READABLE, subject=stored.subject, text=reason, sequence=stored.sequence
        )
        self._unreadable.append(violation)


def _tick_record(schedule: Schedule) -> TickRecord:
    return TickRecord(
        name=schedule.name,
        cron=schedule.cron,
        generation=schedule.generation,
        made_at=schedule.made_at,
        done_until=schedule.done_until,
        last_tick=schedule.last_tick,
        dispatched=schedule.dispatched,
        is_firing=schedule.firing is not None,
        taken_over=schedule.taken_over if schedule.declaration else 0,
        is_tick=partial(_is_tick, schedule),
    )


def _is_tick(schedule: Schedule, at: datetime) -> bool:
    return next_tick(schedule, at - timedelta(seconds=1)) == at
