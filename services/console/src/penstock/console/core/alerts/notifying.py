"""Which messages are sent to which channel, and when. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, MutableMapping

import msgspec

from penstock.console.core.alerts.rules import Configuration, Rule, Silence, Window
from penstock.console.core.alerts.states import (
    Alert,
    ChannelState,
    Entry,
    EntryKind,
    Group,
    Notification,
    States,
    all_labels,
)

CAP_MESSAGES, CAP_SECONDS = 20, 600.0
"""Messages that a channel is sent within this time; then one digest of the rest."""
MOST_ENTRIES = 100
"""Of one message."""
_replace = msgspec.structs.replace


def boundaries(config: Configuration, after: float) -> Iterator[float]:
    """Times at which silences and windows begin or end."""
    for silence in config.silences:
        yield from (at for at in (silence.begins, silence.ends) if at > after)
    for window in config.windows:
        yield window.next_boundary(after)


def muted_by(
    config: Configuration, alerts: Mapping[str, Alert], alert: Alert, rule: Rule, at: float
) -> str:
    """Why no message of an alert is sent at ``at``, as a sentence; empty where one is.

    Args:
        alerts: all, of which some hold back others.
    """
    labels = all_labels(alert, rule)
    mutes: tuple[Silence | Window, ...] = (*config.silences, *config.windows)
    for held in mutes:
        if held.holds(labels, at):
            return f"silenced by {held.author}: {held.reason}"
    for other in alerts.values():
        if other.rule in rule.held_back_by and other.key != alert.key and _is_there(other):
            shared = other.labels.keys() & alert.labels.keys()
            if all(other.labels[name] == alert.labels[name] for name in shared):
                return f"held back by {other.rule}: it follows from that"
    return ""


def _is_there(alert: Alert) -> bool:
    return alert.phase != "inactive"


def notification_id(channel: str, entries: tuple[Entry, ...], at: float) -> str:
    """The same for the same message."""
    parts = [channel, f"{at:.6f}", *(f"{one.kind}:{one.incident}" for one in entries)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


class Post:
    """Messages while a step is made.

    Args:
        config: rules, channels, silences.
        states: of the last step.
    """

    def __init__(self, config: Configuration, states: States) -> None:
        self._config = config
        self._groups = dict(states.groups)
        self._channels = dict(states.channels)
        self.notifications: list[Notification] = []

    # --- what is due ------------------------------------------------------------------------------
    def times(self, alerts: Mapping[str, Alert], after: float) -> Iterator[float]:
        """When messages may be due."""
        for group in self._groups.values():
            if group.waiting:
                yield group.sent_at + self._config.group_seconds
        for channel in self._channels.values():
            if channel.digest and channel.sent:
                yield channel.sent[0] + CAP_SECONDS
        for alert in alerts.values():
            rule = self._config.rules.get(alert.rule)
            if rule is None or alert.phase != "firing" or alert.acknowledged_at:
                continue
            for level in rule.levels:
                yield alert.fired_at + level.after_seconds
            if rule.repeat_seconds:
                yield from (at + rule.repeat_seconds for at in alert.notified.values())

    def collect(self, alerts: MutableMapping[str, Alert], at: float) -> None:
        """Puts what is due at ``at`` into the groups."""
        for key in sorted(alerts):
            alert = alerts[key]
            if alert.phase == "inactive":
                if alert.notified and not alert.is_flapping:
                    self._say_all("resolved", alert)
                    alerts[key] = _replace(alert, notified={}, knows_flapping=False)
                continue
            rule = self._config.rules.get(alert.rule)
            if rule is not None and alert.is_active:
                alerts[key] = self._say(alerts, alert, rule, at)

    def _say(self, alerts: Mapping[str, Alert], alert: Alert, rule: Rule, at: float) -> Alert:
        if alert.is_flapping:
            return self._say_flapping(alerts, alert, rule, at)
        if alert.phase != "firing" or alert.acknowledged_at:
            return alert
        if muted_by(self._config, alerts, alert, rule, at):
            return alert
        notified = dict(alert.notified)
        for number, level in enumerate(rule.levels):
            if alert.fired_at + level.after_seconds <= at:
                for channel in level.channels:
                    is_new = channel not in notified and channel not in alert.failed
                    if is_new and channel in self._config.channels:
                        self._put(channel, "escalated" if number else "firing", alert, rule)
                        notified[channel] = at
        for channel, sent_at in alert.notified.items():
            if rule.repeat_seconds and sent_at + rule.repeat_seconds <= at:
                self._put(channel, "repeat", alert, rule)
                notified[channel] = at
        return alert if notified == alert.notified else _replace(alert, notified=notified)

    def _say_flapping(
        self, alerts: Mapping[str, Alert], alert: Alert, rule: Rule, at: float
    ) -> Alert:
        """One message in place of all that follow, to those who are notified first."""
        is_known = alert.knows_flapping or alert.acknowledged_at
        if is_known or (not alert.notified and muted_by(self._config, alerts, alert, rule, at)):
            return alert
        channels = alert.notified or dict.fromkeys(
            (name for name in rule.channels if name in self._config.channels), at
        )
        flapping = _replace(alert, notified=channels, knows_flapping=True)
        self._say_all("flapping", flapping)
        return flapping

    def _say_all(self, kind: EntryKind, alert: Alert) -> None:
        rule = self._config.rules.get(alert.rule)
        for channel in sorted(alert.notified):
            self._put(channel, kind, alert, rule)

    def _put(self, channel: str, kind: EntryKind, alert: Alert, rule: Rule | None) -> None:
        if channel not in self._config.channels:
            return
        labels = all_labels(alert, rule) if rule else {**alert.labels, "rule": alert.rule}
        names = rule.group_by if rule else ()
        # Alerts of one rule come together; with labels to group by, those that agree in them.
        key = "\0".join((channel, alert.rule, *(labels.get(name, "") for name in names)))
        entry = Entry(
            kind=kind,
            alert=alert.key,
            incident=alert.incident,
            rule=rule.name if rule else alert.rule,
            severity=alert.severity,
            labels=alert.labels,
            text=alert.text,
            advice=alert.advice,
            link=alert.link,
            fired_at=alert.fired_at,
            resolved_at=alert.resolved_at,
        )
        group = self._groups.get(key, Group())
        self._groups[key] = _replace(group, waiting=(*group.waiting, entry))

    # --- sending ----------------------------------------------------------------------------------
    def flush(self, at: float) -> None:
        """Makes messages of the groups whose time has come."""
        for key, group in sorted(self._groups.items()):
            is_due = not group.sent_at or group.sent_at + self._config.group_seconds <= at
            if group.waiting and is_due:
                self._groups[key] = Group(sent_at=at)
                self._send(key.partition("\0")[0], group.waiting, at)
        for name in sorted(self._channels):
            self._send_digest(name, at)

    def _send(self, channel: str, entries: tuple[Entry, ...], at: float) -> None:
        state = self._channels.get(channel, ChannelState())
        sent = _lately(state.sent, at)
        if state.digest or len(sent) >= CAP_MESSAGES:
            waiting = (*state.digest, *entries)
            further = state.further + max(0, len(waiting) - MOST_ENTRIES)
            digest = waiting[:MOST_ENTRIES]
            self._channels[channel] = ChannelState(sent=sent, digest=digest, further=further)
            return
        self._channels[channel] = ChannelState(sent=(*sent, at))
        self._make(channel, entries, at)

    def _send_digest(self, channel: str, at: float) -> None:
        state = self._channels[channel]
        sent = _lately(state.sent, at)
        if state.digest and len(sent) < CAP_MESSAGES:
            self._channels[channel] = ChannelState(sent=(*sent, at))
            self._make(channel, state.digest, at, is_digest=True, further=state.further)

    def _make(
        self,
        channel: str,
        entries: tuple[Entry, ...],
        at: float,
        *,
        is_digest: bool = False,
        further: int = 0,
    ) -> None:
        kept = entries[:MOST_ENTRIES]
        notification = Notification(
            id=notification_id(channel, entries, at),
            channel=channel,
            at=at,
            entries=kept,
            is_digest=is_digest,
            further=further + len(entries) - len(kept),
        )
        self.notifications.append(notification)

    def states(self, now: float) -> tuple[dict[str, Group], dict[str, ChannelState]]:
        """Groups and channels of which something is to be remembered."""
        groups = {
            key: group
            for key, group in self._groups.items()
            if group.waiting or group.sent_at + self._config.group_seconds > now
        }
        channels = {
            name: _replace(state, sent=_lately(state.sent, now))
            for name, state in self._channels.items()
            if state.digest or _lately(state.sent, now)
        }
        return groups, channels


def redirect_waiting(states: States, failed: str, to: str, incidents: frozenset[str]) -> States:
    """The states after what waits for a channel's next message was given to another channel.

    Args:
        failed: the channel that did not take the first message of these incidents.
        to: the channel that is given them; empty for none: they are dropped.
        incidents: of the alerts in that message.
    """
    groups, channels = dict(states.groups), dict(states.channels)

    def give(key: str, entries: tuple[Entry, ...]) -> None:
        group = groups.get(key, Group())
        groups[key] = _replace(group, waiting=(*group.waiting, *entries))

    for key, group in states.groups.items():
        channel, _, rest = key.partition("\0")
        concerned, others = _parted(group.waiting, incidents)
        if channel == failed and concerned:
            groups[key] = _replace(group, waiting=others)
            if to:
                give(f"{to}\0{rest}", concerned)
    state = channels.get(failed, ChannelState())
    concerned, others = _parted(state.digest, incidents)
    if concerned:
        channels[failed] = _replace(state, digest=others)
        if to:
            give(f"{to}\0{concerned[0].rule}", concerned)
    return _replace(states, groups=groups, channels=channels)


def _parted(
    entries: tuple[Entry, ...], incidents: frozenset[str]
) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """The entries of these incidents, and the others."""
    concerned = tuple(one for one in entries if one.incident in incidents)
    return concerned, tuple(one for one in entries if one.incident not in incidents)


def _lately(sent: tuple[float, ...], at: float) -> tuple[float, ...]:
    return tuple(one for one in sent if one + CAP_SECONDS > at)
