"""Dead letters by kind of failure: new ones, many of them, and ones that came back. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import takewhile

from penstock.console.core.alerts.rules import DeadLetters
from penstock.console.core.alerts.states import Observation, Reading
from penstock.console.core.alerts.world import DAY, HOUR, FailureFacts, World
from penstock.views import wording

_USUAL_DAYS = 14.0
_ADVICE = "Look at one of them, mend the cause, then retry all of the kind together."


def dead_letters(condition: DeadLetters, world: World, now: float) -> Reading:
    """One observation for each kind of failure of the last hour."""
    observations = []
    for failure in sorted(world.failures.values(), key=lambda one: one.fingerprint):
        is_muted = failure.function in world.muted and failure.function != condition.function
        if fnmatchcase(failure.function, condition.function) and not is_muted:
            lately = _lately(failure, now)
            is_met = lately >= condition.at_least and _is_met(condition, failure, lately, now)
            labels = (("fingerprint", failure.fingerprint), ("function", failure.function))
            link = f"/jobs?q=state:dead+function:{failure.function}"
            text = _text(condition, failure, lately, now) if is_met else ""
            observations.append(
                Observation(labels=labels, is_met=is_met, text=text, advice=_ADVICE, link=link)
            )
    return Reading(observations=tuple(observations))


def _lately(failure: FailureFacts, now: float) -> int:
    """Jobs of the last hour."""
    expired = takewhile(lambda at: at <= now - HOUR, failure.recent)
    return len(failure.recent) - sum(1 for _ in expired)


def usual_hour(failure: FailureFacts, now: float) -> float | None:
    """Jobs of an hour as a mean of the whole hours before the last one; at most 14 days.

    None while that is less than an hour: a kind of failure that goes on at the pace it began with
    is no surge.
    """
    begin = max(failure.first_at, now - _USUAL_DAYS * DAY)
    last = int((now - HOUR) // HOUR)
    hours = last - begin / HOUR
    if hours < 1.0:
        return None
    return sum(jobs for hour, jobs in failure.hours.items() if hour < last) / hours


def _is_met(condition: DeadLetters, failure: FailureFacts, lately: int, now: float) -> bool:
    if condition.when == "first-seen":
        return now - failure.first_at <= HOUR
    if condition.when == "returned":
        quiet = failure.quiet_before or 0.0
        return quiet >= condition.quiet_hours * HOUR and now - failure.series_since <= HOUR
    usual = usual_hour(failure, now)
    return usual is not None and lately > condition.times * max(usual, 1.0)


def _text(condition: DeadLetters, failure: FailureFacts, lately: int, now: float) -> str:
    jobs = "1 job" if lately == 1 else f"{lately:,} jobs"
    lines = failure.error.message.strip().splitlines() or [""]
    what = f"{wording.error(failure.error.kind)}: {lines[0][:120]}".rstrip(": .")
    died = f"{jobs} of {failure.function or 'unknown functions'} died within the last hour: {what}"
    if condition.when == "first-seen":
        return f"{died}. This failure was never seen before."
    if condition.when == "returned":
        return f"{died}. It is back after {wording.seconds(failure.quiet_before)} without."
    usual = usual_hour(failure, now) or 0.0
    return f"{died}. Usual is {usual:.1f} an hour."
