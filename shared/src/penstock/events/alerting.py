"""Alerts: rules, channels, silences, and what came of them, on the stream ``CONSOLE``."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.events.envelope import Codec, Event, Instant, Int64


class AlertDefinition(Event, frozen=True, kw_only=True):
    """A rule, a channel or a silence.

    Attributes:
        by: who saved it.
    """

    key_field: ClassVar[str] = "name"

    name: str
    by: str = ""


class AlertRuleSaved(AlertDefinition, frozen=True, kw_only=True, tag=True):
    """The rule is as in ``definition`` from now on."""

    noun: ClassVar[str] = "alertrule"

    definition: dict[str, Any]


class AlertRuleRemoved(AlertDefinition, frozen=True, kw_only=True, tag=True):
    """There is no such rule any more; its alerts end."""

    noun: ClassVar[str] = "alertrule"


class AlertChannelSaved(AlertDefinition, frozen=True, kw_only=True, tag=True):
    """The channel is as in ``definition`` from now on; its secrets are sealed."""

    noun: ClassVar[str] = "alertchannel"

    definition: dict[str, Any]


class AlertChannelRemoved(AlertDefinition, frozen=True, kw_only=True, tag=True):
    """There is no such channel any more; what waits for it is sent to no one."""

    noun: ClassVar[str] = "alertchannel"


class SilenceSet(AlertDefinition, frozen=True, kw_only=True, tag=True):
    """Messages of some alerts are not sent for a time."""

    noun: ClassVar[str] = "silence"

    definition: dict[str, Any]


class SilenceEnded(AlertDefinition, frozen=True, kw_only=True, tag=True):
    """The silence ends now."""

    noun: ClassVar[str] = "silence"


class AlertEvent(Event, frozen=True, kw_only=True):
    """Something happened to an alert.

    Attributes:
        alert: key of rule and labels; the same each time that it fires.
        incident: from firing to resolved.
    """

    noun: ClassVar[str] = "alert"
    key_field: ClassVar[str] = "alert"

    alert: str
    incident: str


class AlertFired(AlertEvent, frozen=True, kw_only=True, tag=True):
    """The condition of a rule held for as long as it asks for.

    Attributes:
        text: what it is and what it means.
    """

    rule: str
    severity: str
    labels: dict[str, str] = {}
    text: str = ""
    advice: str = ""
    link: str = ""


class AlertResolved(AlertEvent, frozen=True, kw_only=True, tag=True):
    """The condition ended, or a person resolved the alert.

    Attributes:
        by: the person; empty where the condition ended.
    """

    seconds: float
    by: str = ""


class AlertAcknowledged(AlertEvent, frozen=True, kw_only=True, tag=True):
    """A person takes the alert on: no repeated messages, no escalation."""

    by: str


class AlertResolveRequested(AlertEvent, frozen=True, kw_only=True, tag=True):
    """A person ends the alert; it fires again only after its condition ended."""

    by: str


class AlertNotified(Event, frozen=True, kw_only=True, tag=True):
    """A message to a channel was sent, or given up.

    Attributes:
        notification: its id, the same for each attempt.
        channel: that took it, or did not.
        result: ``sent``, ``failed`` (given up) or ``fallback`` (given to another channel).
        attempts: that were made.
        title: first line of the message.
        error: of the last attempt that failed.
    """

    noun: ClassVar[str] = "notification"
    key_field: ClassVar[str] = "notification"

    notification: str
    channel: str
    result: str
    attempts: Int64 = 1
    title: str = ""
    error: str = ""
    alerts: tuple[str, ...] = ()
    made_at: Instant | None = None


ALERT_EVENTS = Codec(
    AlertRuleSaved,
    AlertRuleRemoved,
    AlertChannelSaved,
    AlertChannelRemoved,
    SilenceSet,
    SilenceEnded,
    AlertFired,
    AlertResolved,
    AlertAcknowledged,
    AlertResolveRequested,
    AlertNotified,
)
