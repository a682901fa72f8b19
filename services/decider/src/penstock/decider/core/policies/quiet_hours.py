"""Policy `quiet-hours`: at certain hours no more than a few workers."""

from __future__ import annotations

from penstock.config.section import Count, Section
from penstock.decider.core.policies.calendar import DAYS, clock, within
from penstock.decider.core.policies.policy import Policy, Proposal, Verdict
from penstock.decider.core.strategies.schedule import Day, zone


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        start: time of day, ``HH:MM``; over midnight if the end comes first.
        end: time of day, ``HH:MM``; over midnight if the end comes first.
        days: on which it starts.
        time_zone: whose clocks count.
        max_workers: as many workers as there may be; the pool's minimum if that is more.
    """

    start: str = "22:00"
    end: str = "06:00"
    days: tuple[Day, ...] = DAYS
    time_zone: str = "UTC"
    max_workers: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        clock(self.start), clock(self.end), zone(self.time_zone)


def before(proposal: Proposal) -> Verdict | None:
    """A promise that is broken meanwhile stays broken: that is what was asked for."""
    options: Options = proposal.options
    most = max(options.max_workers, proposal.profile.min_workers)
    if proposal.workers <= most:
        return None
    hours = clock(options.start), clock(options.end)
    if not within(proposal.now, *hours, options.days, options.time_zone):
        return None
    return Verdict(
        workers=most,
        text=f"{most}: quiet hours, {options.start} to {options.end} {options.time_zone}",
        values={"max_workers": most},
    )


QUIET_HOURS = Policy(
    name="quiet-hours",
    about="From `start` to `end` in a time zone, no more than `max_workers`.",
    before=before,
    options=Options,
    caps=True,
)
