"""What a rule would have done: the engine over recorded events. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec

from penstock.console.core.alerts import messages
from penstock.console.core.alerts.engine import step
from penstock.console.core.alerts.reading import read
from penstock.console.core.alerts.rules import Absence, Configuration, NoLeader, Rule
from penstock.console.core.alerts.states import Effects, Entry, Notification, Observation, States
from penstock.console.core.alerts.world import World
from penstock.console.core.times import instant
from penstock.events.envelope import Event
from penstock.events.job import JobDead
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.snapshot import HostSnapshot, PoolSnapshot
from penstock.views import wording

STEP_SECONDS = 60.0
MOST_INCIDENTS = 200
_NOWHERE = "backtest"
_DAY = 86_400.0
_BY_TIME = (Absence, NoLeader)
"""Conditions that begin to hold because nothing happens."""
_FREQUENT = (PoolSnapshot, HostSnapshot, ScalingDecisionMade, JobDead)
"""Events after which there is one step in a minute, not one for each."""


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """A time for which the rule would have fired. ``ended_at`` None: it fires still."""

    began_at: datetime
    ended_at: datetime | None
    seconds: float
    labels: dict[str, str]
    text: str


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the rule, with figures that were measured.

    Attributes:
        text: the whole of it.
        basis: ``now`` where the condition holds, ``calm`` where it was measured and does not hold,
            ``past`` for the last incident.
    """

    text: str
    basis: Literal["now", "calm", "past"]


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for the whole time.

    Attributes:
        summary: all of it as a sentence.
        messages: that one channel would have been sent.
        flapped: how often it would have begun to flap.
        examined_days: how far the recorded events reach back.
        sample: the message as it would read now; None where nothing was measured to fill it.
    """

    summary: str
    incidents: tuple[Incident, ...]
    fired: int
    seconds: float
    messages: int
    flapped: int
    examined_days: float
    sample: Sample | None = None


def backtest(
    rule: Rule,
    events: Iterable[Event],
    begin: float,
    end: float,
    recorded_since: float | None = None,
) -> Backtest:
    """What the rule would have done between two times.

    Args:
        rule: as it would be saved; enabled or not.
        events: recorded ones, oldest first; those before ``begin`` only prepare the facts.
        begin: POSIX seconds.
        end: POSIX seconds.
        recorded_since: from when on every such event was recorded, POSIX seconds: none is then
            known not to have happened. None where that is not known before the first of them.
    """
    rule = msgspec.structs.replace(
        rule, is_enabled=True, channels=(_NOWHERE,), escalations=(), held_back_by=()
    )
    config = Configuration(rules={rule.id: rule}, channels=frozenset({_NOWHERE}))
    run = _Run(config, rule, begin)
    for event in events:
        at = event.at.timestamp()
        if at > end:
            break
        run.until(at)
        run.take(event, at)
    run.until(end)
    run.step(end)
    return run.answer(end, recorded_since)


class _Run:
    def __init__(self, config: Configuration, rule: Rule, begin: float) -> None:
        self.world = World(stale_seconds=float("inf"))
        self._config, self._rule, self._begin = config, rule, begin
        self._states = States(at=begin)
        self._next = begin
        self._waits = False
        self._open: dict[str, int] = {}
        self._incidents: list[Incident] = []
        self._messages = self._flapped = 0
        self._last: Observation | None = None

    def until(self, at: float) -> None:
        """Steps on a grid until ``at``, where time alone can change what the rule sees."""
        while self._next < at and self._is_by_time():
            self.step(self._next)
            self._next += STEP_SECONDS
        if not self._is_by_time():
            self._next = max(self._next, at)

    def _is_by_time(self) -> bool:
        """Whether a step may change something before there is a further event."""
        alerts, condition = self._states.alerts, self._rule.condition
        return bool(alerts) or self._waits or isinstance(condition, _BY_TIME)

    def take(self, event: Event, at: float) -> None:
        """Takes an event; one that comes each second is looked at with the grid."""
        self.world.take(event)
        if at < self._begin:
            return
        if at >= self._next or not isinstance(event, _FREQUENT):
            self.step(at)
            self._next = at + STEP_SECONDS
        else:
            self._waits = True

    def step(self, at: float) -> None:
        """One step of the engine."""
        self._waits = False
        readings = {self._rule.id: read(self._rule, self.world, at)}
        self._states, effects = step(self._config, self._states, readings, at)
        self._count(effects)

    def _count(self, effects: Effects) -> None:
        self._messages += len(effects.notifications)
        for change in effects.changes:
            key = change.alert.key
            if change.kind == "flapping":
                self._flapped += 1
            elif change.kind == "fired":
                self._open[key] = len(self._incidents)
                self._last = Observation(
                    labels=tuple(change.alert.labels.items()),
                    is_met=True,
                    text=change.alert.text,
                    advice=change.alert.advice,
                    link=change.alert.link,
                )
                self._incidents.append(
                    Incident(
                        began_at=_instant(change.at),
                        ended_at=None,
                        seconds=0.0,
                        labels=change.alert.labels,
                        text=change.alert.text,
                    )
                )
            elif change.kind == "resolved" and key in self._open:
                self._end(self._open.pop(key), change.at, is_over=True)

    def _end(self, number: int, at: float, *, is_over: bool) -> None:
        incident = self._incidents[number]
        self._incidents[number] = msgspec.structs.replace(
            incident,
            ended_at=_instant(at) if is_over else None,
            seconds=at - incident.began_at.timestamp(),
        )

    def answer(self, end: float, recorded_since: float | None) -> Backtest:
        """All that was counted."""
        for number in self._open.values():
            self._end(number, end, is_over=False)
        fired, seconds = len(self._incidents), sum(one.seconds for one in self._incidents)
        known_since = [at for at in (self.world.begins_at, recorded_since) if at is not None]
        days = (end - max(min(known_since, default=end), self._begin)) / _DAY
        return Backtest(
            summary=_summary(fired, seconds, days, self._flapped, self._messages),
            incidents=tuple(self._incidents[-MOST_INCIDENTS:]),
            fired=fired,
            seconds=seconds,
            messages=self._messages,
            flapped=self._flapped,
            examined_days=days,
            sample=self._sample(end),
        )

    def _sample(self, end: float) -> Sample | None:
        observations = read(self._rule, self.world, end).observations
        present = [one for one in observations if one.text and one.is_met is not None]
        if present:
            one = max(present, key=lambda observed: bool(observed.is_met))
            basis: Literal["now", "calm"] = "now" if one.is_met else "calm"
            return Sample(text=_message(self._rule, one, end), basis=basis)
        if self._last is None:
            return None
        return Sample(text=_message(self._rule, self._last, end), basis="past")


def _summary(fired: int, seconds: float, days: float, flapped: int, messages: int) -> str:
    if days <= 0:
        return "No events are recorded: the past is not known."
    span = "1 day" if round(days) == 1 else f"{days:.0f} days" if days >= 1 else "less than a day"
    if not fired:
        return f"Would not have fired in {span}."
    times = {1: "once", 2: "twice"}.get(fired, f"{fired} times")
    sent = "1 message" if messages == 1 else f"{messages} messages"
    flapping = f", flapping {flapped} times" if flapped else ""
    return (
        f"Would have fired {times} in {span}, {wording.seconds(seconds)} in all{flapping}; {sent}."
    )


def _message(rule: Rule, observed: Observation, at: float) -> str:
    entry = Entry(
        kind="firing",
        alert=rule.id,
        incident=_NOWHERE,
        rule=rule.name,
        severity=rule.severity,
        labels=dict(observed.labels),
        text=observed.text,
        advice=observed.advice,
        link=observed.link,
        fired_at=at,
    )
    notification = Notification(id=_NOWHERE, channel=_NOWHERE, at=at, entries=(entry,))
    return f"{messages.title(notification)}\n\n{messages.body(notification)}"


def _instant(at: float) -> datetime:
    return instant(round(at * 1_000_000))
