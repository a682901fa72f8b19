"""Policy `effectiveness`: stops adding workers when more of them did not get more done.

Workers that share a bottleneck (a database, a disk, the cores of a host) slow each other down: a
job takes the longer, the more of them run, and a strategy that answers with more workers feeds the
fire. What gets done is ``busy workers / job seconds`` (Little's law), whatever the queue does. Once
a ``settle_seconds`` the mean of the busy workers and the job time over that time make a rung; a
ladder of rungs going up, none older than ten such times, shows what adding brought.

Against false alarms: a growing queue is no sign, as only run times count; the rise must be far
beyond its own error, hold for the median as for the mean, for busy workers that more than doubled,
and while a breach is there or near; and no event is published before a demand is held back. It
cannot recognise a load whose jobs all become several times longer within minutes:
so it holds for a while only, then tries half as many again, and holds twice as long each time that
brings nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.config.section import Positive, Section
from penstock.decider.core.notices import Notice
from penstock.decider.core.policies.policy import Aftermath, Policy, Proposal, Result, Verdict
from penstock.events.scaling import ScalingIneffective

NAME = "effectiveness"
_APART = 1.2
"""Rungs are at least so far apart."""
_LEVER = 2.25
"""Two rungs are compared only if the busy workers grew at least so many times."""
_TRIAL, _TRIED = 1.5, 1.35
"""A trial is so many times what was held; so many times the busy workers make it count."""
_LEAST_GAIN = 0.3
"""Least gain of each added worker, in workers, that counts as one."""
_SIGMAS = 4.0
_LEAST_JOBS = 30
_RUNGS_LAST = 10
"""Settling times after which a rung is too old to compare with."""
_LONGEST_HOLD_SECONDS = 3600.0


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        settle_seconds: over which what was done is compared; no less than the window of the
            measurements (``metrics.window_seconds``).
        retry_seconds: how long adding stops at first.
    """

    settle_seconds: Positive = 60.0
    retry_seconds: Positive = 300.0


class Rung(msgspec.Struct, frozen=True, array_like=True):
    """Run times measured while so many workers were busy."""

    busy: float
    mean_seconds: float
    p50_seconds: float
    error_seconds: float
    at: float


class Hold(msgspec.Struct, frozen=True, array_like=True):
    """A hold: no further workers for a while, then a trial.

    Attributes:
        workers: no more than these.
        until: when the trial begins, POSIX seconds.
        seconds: how long the hold lasts.
        base: the rung over which ``rung`` brought nothing.
        rung: from which the trial starts.
        announced: it held a demand back, and the event about that was published.
    """

    workers: int
    until: float
    seconds: float
    base: Rung
    rung: Rung
    announced: bool = False


class Past(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memory of this policy; times are POSIX seconds of the broker's clock.

    Attributes:
        since: when the time began that the next rung is about.
        at: when it was last looked at.
        worked: busy worker-seconds since then.
    """

    since: float
    at: float
    worked: float = 0.0
    rungs: tuple[Rung, ...] = ()
    hold: Hold | None = None


def before(proposal: Proposal) -> Verdict | None:
    past, now = _recall(proposal) if "hold" in proposal.memory else None, proposal.now
    if past is None or past.hold is None:
        return None
    hold = past.hold
    trying = now >= hold.until
    most = max(_trial(hold.workers) if trying else hold.workers, proposal.current)
    if proposal.workers <= most:
        return None
    why = (
        "a trial whether further workers get more done now"
        if trying
        else f"further workers only made jobs longer, so that the bottleneck is elsewhere; "
        f"tried again in {hold.until - now:.0f} s"
    )
    return Verdict(
        workers=most, text=f"{most} for now: {why}", values={"job_seconds": hold.rung.mean_seconds}
    )


def after(proposal: Proposal, result: Result) -> Aftermath | None:
    """Adds up the work; at the end of each settling time it makes a rung and compares."""
    past = _recall(proposal)
    if proposal.snapshot is None or not (proposal.busy or past):
        return None
    past, notices = _announced(proposal, result, _looked(proposal, past))
    if proposal.now - past.since >= proposal.options.settle_seconds:
        if not past.worked:  # idle: nothing to compare with, or to hold
            return Aftermath(notices=notices)
        past = _settled(proposal, past, result)
    return Aftermath(memory=msgspec.to_builtins(past), notices=notices)


def _looked(proposal: Proposal, past: Past | None) -> Past:
    """With what was worked since the last look; after silence or a jump it starts anew."""
    now = proposal.now
    if past is None or not 0 <= now - past.at <= proposal.options.settle_seconds:
        hold = past.hold if past else None
        return Past(since=now, at=now, hold=hold if hold and hold.until > now else None)
    worked = past.worked + proposal.busy * (now - past.at)
    return msgspec.structs.replace(past, at=now, worked=worked)


def _settled(proposal: Proposal, past: Past, result: Result) -> Past:
    """With a new rung, if enough jobs ended to make one."""
    assert proposal.snapshot
    service, now = proposal.snapshot.service, proposal.now
    if service is None or service.count < _LEAST_JOBS:
        return Past(since=now, at=now, rungs=past.rungs, hold=past.hold)
    rung = Rung(
        busy=past.worked / (now - past.since),
        mean_seconds=service.mean_seconds,
        p50_seconds=service.p50_seconds,
        error_seconds=service.mean_seconds * math.sqrt(service.cv2 / service.count),
        at=now,
    )
    rungs = _climbed(past.rungs, rung, now - _RUNGS_LAST * proposal.options.settle_seconds)
    settled = Past(since=now, at=now, rungs=rungs, hold=past.hold)
    if past.hold is not None:
        return _tried(proposal, settled, past.hold, rung, result)
    base = _fruitless(rungs) if proposal.urgent else None
    return settled if base is None else _held(proposal, settled, base, rung, result)


def _climbed(rungs: tuple[Rung, ...], rung: Rung, oldest: float) -> tuple[Rung, ...]:
    """The ladder with a new top; those that are not clearly below it, or old, are gone."""
    below = tuple(
        lower for lower in rungs if lower.busy * _APART <= rung.busy and lower.at >= oldest
    )
    return (*below, rung)


def _fruitless(rungs: tuple[Rung, ...]) -> Rung | None:
    """The rung from which climbing to the top brought nothing; one between shows the same, unless
    the lever is so long that it needs no second witness."""
    *below, top = rungs
    for base in below:
        lever = top.busy / base.busy
        between = [rung for rung in below if base.busy < rung.busy < top.busy]
        if lever < _LEVER or not _brought_nothing(base, top):
            continue
        if lever >= _LEVER * 2 or any(_gain(base, rung) < _LEAST_GAIN * 2 for rung in between):
            return base
    return None


def _brought_nothing(base: Rung, top: Rung) -> bool:
    lever = top.busy / base.busy
    rose = top.mean_seconds - base.mean_seconds
    error = math.hypot(top.error_seconds, base.error_seconds)
    # a few very long jobs raise the mean alone; a bottleneck slows the median too
    all_longer = top.p50_seconds > base.p50_seconds * math.sqrt(lever)
    return _gain(base, top) < _LEAST_GAIN and rose > _SIGMAS * error and all_longer


def _gain(base: Rung, top: Rung) -> float:
    """Throughput gained per added worker, in workers: 1 if workers are independent, 0 for none."""
    lever = top.busy / base.busy
    done = lever * base.mean_seconds / max(top.mean_seconds, 1e-9)
    return (done - 1) / (lever - 1)


def _tried(proposal: Proposal, past: Past, hold: Hold, rung: Rung, result: Result) -> Past:
    """The past after a trial, which also ends when the load has gone."""
    if rung.busy < hold.rung.busy / _TRIAL:
        return msgspec.structs.replace(past, hold=None)
    if proposal.now < hold.until or rung.busy < hold.rung.busy * _TRIED:
        return past
    if _gain(hold.rung, rung) >= _LEAST_GAIN or not proposal.urgent:
        return msgspec.structs.replace(past, hold=None, rungs=(rung,))
    return _held(proposal, past, hold.rung, rung, result)


def _held(proposal: Proposal, past: Past, base: Rung, top: Rung, result: Result) -> Past:
    first = proposal.options.retry_seconds
    longest = max(_LONGEST_HOLD_SECONDS, first)
    seconds = min(past.hold.seconds * 2, longest) if past.hold else first
    hold = Hold(result.planned, proposal.now + seconds, seconds, base, top)
    # rungs from before the hold would compare with another time's load
    return msgspec.structs.replace(past, hold=hold, rungs=())


def _announced(proposal: Proposal, result: Result, past: Past) -> tuple[Past, tuple[Notice, ...]]:
    """An event once for each hold that holds a demand back."""
    hold = past.hold
    if hold is None or hold.announced or not result.spoke(NAME):
        return past, ()
    notice = Notice(
        event=ScalingIneffective,
        fields={
            "pool": proposal.pool,
            "workers_before": round(hold.base.busy, 1),
            "workers": round(hold.rung.busy, 1),
            "job_seconds_before": hold.base.mean_seconds,
            "job_seconds": hold.rung.mean_seconds,
            "held_at": hold.workers,
            "held_seconds": hold.seconds,
        },
    )
    announced = msgspec.structs.replace(hold, announced=True)
    return msgspec.structs.replace(past, hold=announced), (notice,)


def _trial(workers: int) -> int:
    return math.ceil(workers * _TRIAL)


def _recall(proposal: Proposal) -> Past | None:
    memory: Mapping[str, Any] = proposal.memory
    return msgspec.convert(memory, Past) if memory else None


EFFECTIVENESS = Policy(
    name=NAME,
    about="Stops adding workers that add no throughput, as jobs take longer the more of them run; "
    "tries again after a while. Publishes `ScalingIneffective`: the bottleneck is elsewhere.",
    before=before,
    after=after,
    options=Options,
)
