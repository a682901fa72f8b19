"""Policy `budget-cap`: so many worker-hours, or so much money, a day.

What is left after the minimum is paid for is given out as workers that could run for another
``pace_seconds``. So the cap comes down gently while the budget is used up, and is never exceeded
but by the minimum itself. What counts are planned workers, from decision to decision: a leader that
takes over goes on with the sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.config.section import NonNegative, Section
from penstock.decider.core.notices import Notice
from penstock.decider.core.policies.calendar import Today, today
from penstock.decider.core.policies.policy import Aftermath, Policy, Proposal, Result, Verdict
from penstock.decider.core.strategies.schedule import zone
from penstock.events.scaling import BudgetCapReached

NAME = "budget-cap"


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        worker_hours_per_day: 0 for no limit by hours.
        money_per_day: in any currency; 0 for no limit by money.
        price_per_worker_hour: in any currency; 0 for no limit by money.
        time_zone: whose midnight begins a day.
        pace_seconds: the cap is what the rest of the budget pays for during this time.
    """

    worker_hours_per_day: NonNegative = 0.0
    money_per_day: NonNegative = 0.0
    price_per_worker_hour: NonNegative = 0.0
    time_zone: str = "UTC"
    pace_seconds: Annotated[float, Meta(ge=60, le=86_400)] = 3600.0

    def __post_init__(self) -> None:
        super().__post_init__()
        zone(self.time_zone)
        if self.money_per_day and not self.price_per_worker_hour:
            raise ValueError("expected price_per_worker_hour besides money_per_day, found none")
        if not self.worker_hours_per_day and not self.money_per_day:
            raise ValueError("expected worker_hours_per_day or money_per_day, found neither")

    @property
    def seconds_per_day(self) -> float:
        """Worker-seconds: the smaller of the limits that are set."""
        hours = [self.worker_hours_per_day] if self.worker_hours_per_day else []
        if self.money_per_day:
            hours.append(self.money_per_day / self.price_per_worker_hour)
        return 3600 * min(hours)


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """The worker-seconds spent on one day.

    Attributes:
        date: the day.
        at: the moment up to which it was counted, POSIX seconds.
        spent: worker-seconds.
        announced: the event about the cap was published today.
    """

    date: str
    at: float
    spent: float = 0.0
    announced: bool = False

    def up_to(self, now: float, day: Today, workers: int) -> Account:
        """The account with the cost of so many workers since."""
        # over midnight only the time since then counts for the new day
        if day.date != self.date:
            return Account(day.date, now, workers * min(max(now - self.at, 0), now - day.start))
        spent = self.spent + workers * max(now - self.at, 0.0)
        return Account(day.date, now, spent, self.announced)


def before(proposal: Proposal) -> Verdict | None:
    options: Options = proposal.options
    account, day = _account(proposal)
    left = options.seconds_per_day - account.spent
    cap = _affordable(left, day.end - proposal.now, proposal.profile.min_workers, options)
    if proposal.workers <= cap:
        return None
    return Verdict(
        workers=cap,
        text=f"{cap} by budget: {max(left, 0) / 3600:.1f} of {options.seconds_per_day / 3600:g} "
        "worker-hours are left today",
        values={"spent_worker_seconds": account.spent, "left_worker_seconds": left},
    )


def after(proposal: Proposal, result: Result) -> Aftermath | None:
    """Keeps the account, also without measurements; announces once a day that the cap binds."""
    options: Options = proposal.options
    account, _ = _account(proposal)
    if not result.spoke(NAME) or account.announced:
        return Aftermath(memory=msgspec.to_builtins(account))
    notice = Notice(
        event=BudgetCapReached,
        fields={
            "pool": proposal.pool,
            "wanted": proposal.wanted,
            "workers": result.target,
            "spent_worker_hours": account.spent / 3600,
            "worker_hours_per_day": options.seconds_per_day / 3600,
        },
    )
    announced = msgspec.structs.replace(account, announced=True)
    return Aftermath(memory=msgspec.to_builtins(announced), notices=(notice,))


def _account(proposal: Proposal) -> tuple[Account, Today]:
    day = today(proposal.now, proposal.options.time_zone)
    return _recall(proposal.memory, day, proposal.now).up_to(
        proposal.now, day, proposal.current
    ), day


def _recall(memory: Mapping[str, Any], day: Today, now: float) -> Account:
    return msgspec.convert(memory, Account) if memory else Account(day.date, now)


def _affordable(left: float, rest_seconds: float, least: int, options: Options) -> int:
    """The minimum for the rest of the day, and as many besides as the rest pays for ``pace``."""
    pace = min(options.pace_seconds, rest_seconds)
    spare = left - least * rest_seconds
    return least + max(math.floor(spare / max(pace, 1.0)), 0)


BUDGET_CAP = Policy(
    name=NAME,
    about="So many worker-hours, or so much money, a day: what is left is spread over the next "
    "hour, so that the cap falls slowly; never below the minimum. Publishes `BudgetCapReached`.",
    before=before,
    after=after,
    options=Options,
    caps=True,
)
