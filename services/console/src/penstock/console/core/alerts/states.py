"""What is remembered of alerts, groups of messages and channels between two steps. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import msgspec

from penstock.console.core.alerts.rules import Rule, Severity

Phase = Literal["inactive", "pending", "firing", "keep"]
EntryKind = Literal["firing", "repeat", "escalated", "flapping", "resolved"]


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule sees of one pool, host, queue or kind of failure.

    Attributes:
        labels: that distinguish it from others of the rule.
        is_met: whether the condition holds; None where that is not known.
        text: what it is and what it means, as a sentence.
        advice: what to do.
        link: page that shows more.
    """

    labels: tuple[tuple[str, str], ...]
    is_met: bool | None
    text: str = ""
    advice: str = ""
    link: str = ""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule sees at an instant.

    Attributes:
        observations: one for each thing.
        is_known: False where there is no data: everything of the rule freezes; else what has no
            observation does not meet the condition.
    """

    observations: tuple[Observation, ...] = ()
    is_known: bool = True


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule about one thing.

    Attributes:
        since: when the phase began.
        due: when the phase ends by itself; None for never.
        frozen_since: since when there is no data; then nothing is due.
        left_seconds: what was left until ``due`` when it froze.
        fired_at: of the present incident, or of the last one.
        incident: its id; the same through all its messages.
        notified: when each channel was last sent a message; those are who got the firing message.
        failed: channels that did not take the firing message; their fallbacks are in ``notified``.
        is_met: the last known answer.
        is_dismissed: resolved by a person; it fires again only after the condition ended once.
        changes: slots of time in which ``is_met`` changed, for flapping.
    """

    key: str
    rule: str
    labels: dict[str, str]
    severity: Severity = "warn"
    phase: Phase = "inactive"
    since: float = 0.0
    due: float | None = None
    frozen_since: float | None = None
    left_seconds: float | None = None
    fired_at: float = 0.0
    resolved_at: float = 0.0
    resolved_by: str = ""
    incident: str = ""
    text: str = ""
    advice: str = ""
    link: str = ""
    acknowledged_at: float = 0.0
    acknowledged_by: str = ""
    notified: dict[str, float] = {}
    failed: tuple[str, ...] = ()
    is_met: bool = False
    is_dismissed: bool = False
    changes: tuple[int, ...] = ()
    is_flapping: bool = False
    knows_flapping: bool = False

    @property
    def is_active(self) -> bool:
        """Whether it fires, or did just now."""
        return self.phase in ("firing", "keep")

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing is left to remember."""
        return self.phase == "inactive" and not (self.notified or self.is_dismissed or self.changes)


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An alert in a message."""

    kind: EntryKind
    alert: str
    incident: str
    rule: str
    severity: Severity
    labels: dict[str, str]
    text: str
    advice: str = ""
    link: str = ""
    fired_at: float = 0.0
    resolved_at: float = 0.0


class Notification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to one channel.

    Attributes:
        id: the same however often it is sent.
        is_digest: many messages in one, as the channel's cap was reached.
        further: entries that did not fit.
    """

    id: str
    channel: str
    at: float
    entries: tuple[Entry, ...]
    is_digest: bool = False
    further: int = 0


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Entries that wait for the next message of their group."""

    waiting: tuple[Entry, ...] = ()
    sent_at: float = 0.0


class ChannelState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a channel was sent lately, and what waits for its digest."""

    sent: tuple[float, ...] = ()
    digest: tuple[Entry, ...] = ()
    further: int = 0


class States(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything between two steps; ``at``: POSIX seconds of the last one."""

    at: float = 0.0
    alerts: dict[str, Alert] = {}
    groups: dict[str, Group] = {}
    channels: dict[str, ChannelState] = {}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to an alert, for its history."""

    kind: Literal["fired", "resolved", "frozen", "thawed", "flapping", "settled"]
    at: float
    alert: Alert


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """What a step leads to, in order of time."""

    changes: tuple[Change, ...] = ()
    notifications: tuple[Notification, ...] = ()


def alert_key(rule: str, labels: Mapping[str, str]) -> str:
    """The same for the same rule and labels; fits in a subject."""
    return _key(rule, tuple(sorted(labels.items())))


@lru_cache(maxsize=4096)  # asked for at each step of a backtest
def _key(rule: str, labels: tuple[tuple[str, str], ...]) -> str:
    text = "\0".join((rule, *(f"{name}={value}" for name, value in labels)))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def all_labels(alert: Alert, rule: Rule) -> dict[str, str]:
    """Its own, and those that every alert has."""
    kind = str(rule.condition.__struct_config__.tag)
    return {**alert.labels, "rule": rule.id, "kind": kind, "severity": rule.severity}
