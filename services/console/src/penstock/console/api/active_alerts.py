"""Active alerts as the API answers them: with times as everywhere else."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.console.alerts.parts import Shown
from penstock.console.core.alerts.rules import Severity
from penstock.console.core.alerts.states import Phase
from penstock.console.core.times import instant


class AlertNow(msgspec.Struct, frozen=True, kw_only=True):
    """One rule about one thing, as it stands.

    Attributes:
        since: when the phase began.
        frozen_since: since when there is no data.
        fired_at: of the present incident, or of the last one.
        notified: when each channel was last sent a message.
        failed: channels that did not take the firing message.
    """

    key: str
    rule: str
    labels: dict[str, str]
    severity: Severity
    phase: Phase
    text: str
    advice: str
    link: str
    incident: str
    since: datetime
    frozen_since: datetime | None
    fired_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str
    resolved_at: datetime | None
    resolved_by: str
    notified: dict[str, datetime]
    failed: tuple[str, ...]
    is_flapping: bool


class ActiveAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert as lists show it.

    Attributes:
        rule_name: of its rule.
        muted: why no message of it is sent, as a sentence; empty where they are.
    """

    alert: AlertNow
    rule_name: str
    muted: str


def active_alert(shown: Shown) -> ActiveAlert:
    """As it is answered."""
    alert = shown.alert
    now = AlertNow(
        key=alert.key,
        rule=alert.rule,
        labels=alert.labels,
        severity=alert.severity,
        phase=alert.phase,
        text=alert.text,
        advice=alert.advice,
        link=alert.link,
        incident=alert.incident,
        since=_instant(alert.since),
        frozen_since=_instant_or_none(alert.frozen_since),
        fired_at=_instant_or_none(alert.fired_at),
        acknowledged_at=_instant_or_none(alert.acknowledged_at),
        acknowledged_by=alert.acknowledged_by,
        resolved_at=_instant_or_none(alert.resolved_at),
        resolved_by=alert.resolved_by,
        notified={channel: _instant(at) for channel, at in alert.notified.items()},
        failed=alert.failed,
        is_flapping=alert.is_flapping,
    )
    return ActiveAlert(alert=now, rule_name=shown.rule_name, muted=shown.muted)


def _instant(seconds: float) -> datetime:
    return instant(round(seconds * 1e6))


def _instant_or_none(seconds: float | None) -> datetime | None:
    """Of a state that never was: 0, or None."""
    return _instant(seconds) if seconds else None
