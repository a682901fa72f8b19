"""One step of all alerts: readings and time in, states and effects out. Pure.

Between two steps the earlier readings hold. A step first runs what fell due since the last one, at
the time it was due, and then takes the new readings: how often steps are made does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from penstock.console.core.alerts import flapping
from penstock.console.core.alerts.notifying import Post, boundaries, redirect_waiting
from penstock.console.core.alerts.rules import Configuration, Rule
from penstock.console.core.alerts.states import (
    Alert,
    Change,
    Effects,
    Observation,
    Reading,
    States,
    alert_key,
)

MOST_ALERTS = 500
"""Of all rules together; what comes beyond is not tracked until others have ended."""
_replace = msgspec.structs.replace


def step(
    config: Configuration, states: States, readings: Mapping[str, Reading], now: float
) -> tuple[States, Effects]:
    """The states at ``now``, and what happened until then.

    Args:
        config: rules, channels, silences, windows.
        states: of the last step.
        readings: what each rule sees now, by id; a rule without one has no data.
        now: POSIX seconds; a time before the last step counts as that.
    """
    now = max(now, states.at)
    run = _Run(config, states)
    while (due := run.next_due(now)) is not None:
        run.advance(due)
        run.notify(due)
    run.advance(now)
    run.take(readings, now)
    run.notify(now)
    return run.end(now)


class _Run:
    """The states while a step is made."""

    def __init__(self, config: Configuration, states: States) -> None:
        self._config = config
        self._alerts = dict(states.alerts)
        self._post = Post(config, states)
        self._changes: list[Change] = []
        self._done_until = states.at

    # --- time -------------------------------------------------------------------------------------
    def next_due(self, before: float) -> float | None:
        """The earliest time after the last one and before ``before`` at which something is due."""
        after = self._done_until
        times = (at for at in self._times(after) if after < at < before)
        return min(times, default=None)

    def _times(self, after: float) -> Iterator[float]:
        for alert in self._alerts.values():
            if alert.due is not None:
                yield alert.due
            if alert.is_flapping:
                yield flapping.next_slot(after)
        if self._alerts:
            yield from boundaries(self._config, after)
        yield from self._post.times(self._alerts, after)

    def advance(self, at: float) -> None:
        """Runs what is due until ``at``."""
        for key, alert in sorted(self._alerts.items()):
            if alert.due is not None and alert.due <= at:
                if alert.phase == "pending":
                    self._fire(key, alert.due)
                elif alert.phase == "keep":
                    self._resolve(key, alert.due, "")
            self._settle(key, at)
        self._done_until = at

    def _settle(self, key: str, at: float) -> None:
        alert = self._alerts[key]
        if alert.is_flapping and not flapping.flaps(alert.changes, at, is_flapping=True):
            self._set(key, is_flapping=False, knows_flapping=False)
            self._note("settled", at, key)

    # --- readings ---------------------------------------------------------------------------------
    def take(self, readings: Mapping[str, Reading], now: float) -> None:
        """Applies what the rules see now."""
        observed: set[str] = set()
        for rule_id, rule in sorted(self._config.rules.items()):
            reading = readings.get(rule_id, Reading(is_known=False))
            if rule.is_enabled:
                for observation in reading.observations:
                    observed |= self._observe(rule, observation, now)
        for key in sorted(self._alerts.keys() - observed):
            its_rule = self._config.rules.get(self._alerts[key].rule)
            if its_rule is None or not its_rule.is_enabled:
                self._withdraw(key, now)
            elif readings.get(its_rule.id, Reading(is_known=False)).is_known:
                self._take_answer(key, its_rule, None, False, now)
            else:
                self._freeze(key, now)

    def _observe(self, rule: Rule, observation: Observation, now: float) -> set[str]:
        labels = dict(observation.labels)
        key = alert_key(rule.id, labels)
        if key not in self._alerts:
            if not observation.is_met or len(self._alerts) >= MOST_ALERTS:
                return set()
            self._alerts[key] = Alert(key=key, rule=rule.id, labels=labels)
        if observation.is_met is None:
            self._freeze(key, now)
        else:
            self._take_answer(key, rule, observation, observation.is_met, now)
        return {key}

    def _freeze(self, key: str, now: float) -> None:
        alert = self._alerts[key]
        if alert.frozen_since is None and alert.phase != "inactive":
            left = None if alert.due is None else alert.due - now
            self._set(key, frozen_since=now, left_seconds=left, due=None)
            self._note("frozen", now, key)

    def _take_answer(
        self, key: str, rule: Rule, observation: Observation | None, is_met: bool, now: float
    ) -> None:
        alert = self._alerts[key]
        if alert.frozen_since is not None:
            due = None if alert.left_seconds is None else now + alert.left_seconds
            self._set(key, frozen_since=None, left_seconds=None, due=due)
            self._note("thawed", now, key)
        if observation is not None and is_met:
            self._set(
                key,
                text=observation.text,
                advice=observation.advice,
                link=observation.link,
                severity=rule.severity,
            )
        if is_met != alert.is_met:
            self._count_change(key, is_met, now)
        if is_met:
            self._met(key, rule, now)
        else:
            self._not_met(key, rule, now)

    def _count_change(self, key: str, is_met: bool, now: float) -> None:
        alert = self._alerts[key]
        changes = flapping.with_change(alert.changes, now)
        is_flapping = flapping.flaps(changes, now, is_flapping=alert.is_flapping)
        self._set(key, is_met=is_met, changes=changes, is_flapping=is_flapping)
        if is_flapping and not alert.is_flapping:
            self._note("flapping", now, key)

    def _met(self, key: str, rule: Rule, now: float) -> None:
        alert = self._alerts[key]
        if alert.phase == "keep":
            self._set(key, phase="firing", since=now, due=None)
        elif alert.phase == "inactive" and not alert.is_dismissed:
            if rule.for_seconds:
                self._set(key, phase="pending", since=now, due=now + rule.for_seconds)
            else:
                self._fire(key, now)

    def _not_met(self, key: str, rule: Rule, now: float) -> None:
        phase = self._alerts[key].phase
        if phase == "inactive":
            self._set(key, is_dismissed=False)
        elif phase == "pending":
            self._set(key, phase="inactive", since=now, due=None)
        elif phase == "firing" and rule.keep_seconds:
            self._set(key, phase="keep", since=now, due=now + rule.keep_seconds)
        elif phase == "firing":
            self._resolve(key, now, "")

    def _withdraw(self, key: str, now: float) -> None:
        """Its rule was removed or switched off."""
        if self._alerts[key].is_active:
            self._resolve(key, now, "the rule was switched off or removed")
        self._set(key, phase="inactive", due=None, frozen_since=None, left_seconds=None, changes=())
        self._set(key, is_flapping=False, is_dismissed=False, is_met=False)

    # --- transitions ------------------------------------------------------------------------------
    def _fire(self, key: str, at: float) -> None:
        alert = self._alerts[key]
        if alert.notified:  # it flaps, and who knows of it was not sent its end: the same incident
            self._set(key, phase="firing", since=at, due=None)
            return
        self._set(
            key,
            phase="firing",
            since=at,
            due=None,
            fired_at=at,
            failed=(),
            incident=f"{key}-{round(at * 1000):x}",
            resolved_at=0.0,
            resolved_by="",
            acknowledged_at=0.0,
            acknowledged_by="",
        )
        self._note("fired", at, key)

    def _resolve(self, key: str, at: float, by: str) -> None:
        self._set(key, phase="inactive", since=at, due=None, resolved_at=at, resolved_by=by)
        self._note("resolved", at, key)

    def _set(self, key: str, **fields: Any) -> None:
        self._alerts[key] = _replace(self._alerts[key], **fields)

    def _note(self, kind: Any, at: float, key: str) -> None:
        self._changes.append(Change(kind=kind, at=at, alert=self._alerts[key]))

    # --- messages ---------------------------------------------------------------------------------
    def notify(self, at: float) -> None:
        """Makes the messages that are due at ``at``."""
        self._post.collect(self._alerts, at)
        self._post.flush(at)
        for key, alert in list(self._alerts.items()):
            live = tuple(one for one in alert.changes if flapping.slot(at) - one < flapping.SLOTS)
            if alert.phase == "inactive" and not alert.is_flapping and live != alert.changes:
                self._set(key, changes=live)
            if self._alerts[key].is_forgettable:
                del self._alerts[key]

    def end(self, now: float) -> tuple[States, Effects]:
        """The states and effects of the whole step."""
        groups, channels = self._post.states(now)
        states = States(at=now, alerts=self._alerts, groups=groups, channels=channels)
        return states, Effects(
            changes=tuple(self._changes), notifications=tuple(self._post.notifications)
        )


# --- what people do -------------------------------------------------------------------------------
def acknowledge(states: States, incident: str, by: str, now: float) -> States:
    """The states after a person took an alert on: no repeats, no escalation."""
    alert = _active(states, incident)
    if alert is None or alert.acknowledged_at:
        return states
    alert = _replace(alert, acknowledged_at=now, acknowledged_by=by)
    return _replace(states, alerts={**states.alerts, alert.key: alert})


def resolve(
    states: States, incident: str, by: str, now: float
) -> tuple[States, tuple[Change, ...]]:
    """The states after a person ended an alert: it fires again only once its condition ended."""
    alert = _active(states, incident)
    if alert is None:
        return states, ()
    alert = _replace(
        alert,
        phase="inactive",
        since=now,
        due=None,
        frozen_since=None,
        left_seconds=None,
        resolved_at=now,
        resolved_by=by,
        is_dismissed=True,
    )
    changed = _replace(states, alerts={**states.alerts, alert.key: alert})
    return changed, (Change(kind="resolved", at=now, alert=alert),)


def _active(states: States, incident: str) -> Alert | None:
    """The alert of an incident that lasts; a person does not act on the one after it."""
    alerts = states.alerts.values()
    return next((one for one in alerts if one.is_active and one.incident == incident), None)


def redirect(states: States, failed: str, to: str, incidents: frozenset[str]) -> States:
    """The states after a firing message was given to a fallback, or given up.

    Args:
        failed: the channel that did not take it.
        to: the channel that is given it; empty for none.
        incidents: of the alerts in that message.
    """

    def moved(alert: Alert) -> Alert:
        if alert.incident not in incidents or failed not in alert.notified:
            return alert
        notified = {name: at for name, at in alert.notified.items() if name != failed}
        further = {to: alert.notified[failed]} if to else {}
        channels = tuple(dict.fromkeys((*alert.failed, failed)))
        return _replace(alert, notified={**notified, **further}, failed=channels)

    states = _replace(states, alerts={key: moved(alert) for key, alert in states.alerts.items()})
    return redirect_waiting(states, failed, to, incidents)
