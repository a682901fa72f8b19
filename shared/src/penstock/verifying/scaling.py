"""The rules of leaders, their commands, and schedules. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from penstock.events.scaling import LeaderChanged, WorkersScaled
from penstock.verifying.rules import Rule, Violation

_JUDGED_TICKS = 10_000
"""Of one schedule, the latest: finding a tick of an expression takes some 50 µs."""


class TickRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the record of a schedule says of its ticks; fields as those of `Schedule`.

    Attributes:
        is_declared: it may have taken `dispatched` and `last_tick` over from an earlier generation.
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
    is_declared: bool
    is_tick: Callable[[datetime], bool]


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
    commands: Sequence[tuple[int, WorkersScaled]], reached: int | None
) -> Iterator[Violation]:
    """A host's commands grow, and none is of an epoch that no leader has had.

    Args:
        commands: of one host; a running installation keeps the last one.
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
    most = schedule.dispatched + schedule.is_firing
    if len(handled) > most:
        text = f"{len(handled)} ticks have a job, its record counts {most}"
        yield Violation(rule=Rule.TICK, subject=subject, text=text)
    if whole_since is None:
        return
    is_whole = schedule.made_at >= whole_since and not schedule.is_declared
    if is_whole and len(handled) < schedule.dispatched:
        text = f"{len(handled)} ticks have a job, its record counts {schedule.dispatched}"
        yield Violation(rule=Rule.TICK, subject=subject, text=text)
    last = schedule.last_tick
    if last and last >= max(whole_since, schedule.made_at) and int(last.timestamp()) not in ticks:
        text = f"its last tick, {last:%Y-%m-%d %H:%M:%S} UTC, has no job"
        yield Violation(rule=Rule.TICK, subject=subject, text=text)
