"""The rules of leaders, their commands, and schedules. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from penstock.events.scaling import LeaderChanged, WorkersScaled
from penstock.verifying.rules import Rule, Violation

_JUDGED_TICKS = 10_000
"""Of one schedule, the latest: finding a tick of an expression takes some 50 µs."""


class TickRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the record of a schedule says of its ticks; fields as those of `Schedule`.

    Attributes:
        taken_over: of `dispatched`, those of earlier generations; None where it is not known. As
            many may be of `last_tick`.
        is_tick: whether the expression has a tick at this time.
    """

    name: str
    cron: str
    generation: str
    made_at: datetime
    done_until: datetime
    last_tick: datetime | None
    dispatched: int
    is_firing: bool
    taken_over: int | None
    is_tick: Callable[[datetime], bool]


def announced_from(changes: Sequence[tuple[int, LeaderChanged]], trimmed: bool) -> int | None:
    """The epoch from which on the log has each leader's announcement; None where it has none.

    Args:
        changes: in the log's order.
        trimmed: there were earlier events.
    """
    if not trimmed:
        return 0
    return changes[0][1].epoch if changes else None


def is_led(command: WorkersScaled, whole_from: int | None) -> bool:
    """Whether the log has to have the announcement of the leader of a command."""
    return whole_from is not None and command.epoch >= whole_from


def is_counted(schedule: TickRecord, whole_since: datetime | None) -> bool:
    """Whether the log has a job of each tick that the record counts, and the record says of which.

    Args:
        schedule: its record.
        whole_since: the log holds every event from then on.
    """
    is_known = schedule.taken_over is not None
    return is_known and whole_since is not None and schedule.made_at >= whole_since


def check_leaders(changes: Sequence[tuple[int, LeaderChanged]]) -> Iterator[Violation]:
    """An epoch has one leader.

    Their order is not judged: a leader that was stopped while it announced itself does so later.
    """
    leaders: dict[int, str] = {}
    for number, change in changes:
        other = leaders.setdefault(change.epoch, change.leader)
        if other != change.leader:
            yield Violation(
                rule=Rule.FENCED,
                subject=f"leader {change.leader}",
                text=f"epoch {change.epoch} is that of {other}, too",
                sequence=number,
            )


def check_commands(
    commands: Sequence[tuple[int, WorkersScaled]],
    announced: Collection[int],
    whole_from: int | None,
    reached: int | None,
) -> Iterator[Violation]:
    """A host's commands grow, and none is of an epoch that no leader has announced.

    Args:
        commands: of one host; a running installation keeps the last one.
        announced: epochs of leaders, read after the commands: a leader announces itself first.
        whole_from: see :func:`announced_from`.
        reached: the epoch of the deciders' lease, read after the commands; None where not known.
    """
    order = (0, 0)
    for number, command in commands:
        subject = f"commands of host {command.host}"
        if command.order <= order:
            text = f"(epoch, version) {command.order} after {order}"
            yield Violation(rule=Rule.FENCED, subject=subject, text=text, sequence=number)
        if reached is not None and command.epoch > reached:
            text = f"epoch {command.epoch}, leaders have reached {reached}"
            yield Violation(rule=Rule.FENCED, subject=subject, text=text, sequence=number)
        elif is_led(command, whole_from) and command.epoch not in announced:
            text = f"epoch {command.epoch}, which no leader has announced in the log"
            yield Violation(rule=Rule.FENCED, subject=subject, text=text, sequence=number)
        order = max(order, command.order)


def check_ticks(
    schedule: TickRecord, ticks: Sequence[int], whole_since: datetime | None
) -> Iterator[Violation]:
    """The jobs of a schedule's ticks are those that its expression and its record name.

    That no tick is dispatched twice follows from the rule of jobs: one tick is one job's id.

    Args:
        schedule: its record, read before the event log.
        ticks: those that have a job in the log, POSIX seconds.
        whole_since: the log holds every event from then on.
    """
    subject = f"schedule {schedule.name}"
    handled = sorted(tick for tick in ticks if tick <= schedule.done_until.timestamp())
    for tick in handled[-_JUDGED_TICKS:]:
        at = datetime.fromtimestamp(tick, UTC)
        if not schedule.is_tick(at):
            text = f"a job for {at:%Y-%m-%d %H:%M:%S} UTC, which is no tick of {schedule.cron!r}"
            yield Violation(rule=Rule.TICK, subject=subject, text=text)
    least = schedule.dispatched - (schedule.taken_over or 0)
    most = least + schedule.is_firing
    if len(handled) > most or (is_counted(schedule, whole_since) and len(handled) < least):
        counted = f"{least} or {most}" if schedule.is_firing else f"{least}"
        text = f"{len(handled)} ticks have a job, its record counts {counted}"
        yield Violation(rule=Rule.TICK, subject=subject, text=text)
    last = schedule.last_tick
    if whole_since is None or last is None:
        return
    if last >= max(whole_since, schedule.made_at) and int(last.timestamp()) not in ticks:
        text = f"its last tick, {last:%Y-%m-%d %H:%M:%S} UTC, has no job"
        yield Violation(rule=Rule.TICK, subject=subject, text=text)
