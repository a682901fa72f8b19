"""Rules, channels, silences and the history of alerts, followed from the stream ``CONSOLE``."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from penstock.bus.protocol import Bus, BusError, BusUnavailable, Expect, Outgoing
from penstock.console.core.alerts.channels import Channel
from penstock.console.core.alerts.defaults import DEFAULT_RULES
from penstock.console.core.alerts.rules import Configuration, Rule, Silence, Window
from penstock.events.alerting import (
    ALERT_EVENTS,
    AlertAcknowledged,
    AlertChannelRemoved,
    AlertChannelSaved,
    AlertFired,
    AlertNotified,
    AlertResolved,
    AlertResolveRequested,
    AlertRuleRemoved,
    AlertRuleSaved,
    SilenceEnded,
    SilenceSet,
)
from penstock.events.envelope import Codec, Event, MalformedEvent, encode
from penstock.events.muting import MUTE_EVENTS, FunctionMuted, MuteEvent
from penstock.events.subjects import Subjects
from penstock.operations import muted_functions
from penstock.runtime.service import Service
from penstock.runtime.tasks import within

log = logging.getLogger("penstock.console.alerts")

NOUNS = ("alertrule", "alertchannel", "silence", "mute", "alert", "notification")
_EVENTS = Codec(*ALERT_EVENTS, *MUTE_EVENTS)
MOST_RULES, MOST_CHANNELS, MOST_SILENCES = 200, 50, 200
MOST_HISTORY, MOST_NOTIFICATIONS, MOST_ACTS = 1_000, 1_000, 1_000
GROUP_SECONDS = 30.0
_RETRY_SECONDS = 1.0
_READ_SECONDS, _CATCH_UP_SECONDS = 0.5, 30.0
_KEPT_SECONDS = {"alert": 400 * 86_400, "notification": 30 * 86_400}

Act = AlertAcknowledged | AlertResolveRequested
"""What a person does to an alert."""


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that fired. ``resolved_at`` None: it fires still, or its end is not stored."""

    alert: str
    incident: str
    rule: str
    severity: str
    labels: dict[str, str]
    text: str
    advice: str
    link: str
    fired_at: datetime
    resolved_at: datetime | None = None
    seconds: float | None = None
    resolved_by: str = ""


class Book:
    """All that people decided about alerts, and what happened.

    Args:
        bus: a connection of this service.
        subjects: of the installation.
        changed: called after each event.

    Attributes:
        group_seconds: least time between two messages of one group to one channel.
        muted: functions whose failures are not listed, by name.
        muted_at: sequence of the last event by which that changed.
        versions: of each rule and channel: sequence of the event that saved it, for ``If-Match``.
        acts: what people did to alerts lately, each with its sequence, oldest first.
    """

    def __init__(self, bus: Bus, subjects: Subjects, changed: Callable[[Event], None]) -> None:
        self._bus, self._subjects, self._changed = bus, subjects, changed
        self.rules: dict[str, Rule] = {rule.id: rule for rule in DEFAULT_RULES}
        self.channels: dict[str, Channel] = {}
        self.silences: dict[str, Silence | Window] = {}
        self.muted: dict[str, FunctionMuted] = {}
        self.muted_at = 0
        self.history: OrderedDict[str, Past] = OrderedDict()
        self.notifications: OrderedDict[tuple[str, str, str], AlertNotified] = OrderedDict()
        self.versions: dict[tuple[str, str], int] = {}
        self.acts: deque[tuple[int, Act]] = deque(maxlen=MOST_ACTS)
        self.group_seconds = GROUP_SECONDS
        self._position = 0
        self._advanced = asyncio.Condition()

    @property
    def configuration(self) -> Configuration:
        """What the engine decides by."""
        silences = self.silences.values()
        return Configuration(
            rules=dict(self.rules),
            channels=frozenset(name for name, one in self.channels.items() if one.is_enabled),
            silences=tuple(one for one in silences if isinstance(one, Silence)),
            windows=tuple(one for one in silences if isinstance(one, Window)),
            group_seconds=self.group_seconds,
        )

    async def run(self, service: Service) -> None:
        """Follows until the service stops; goes on where it was when the broker was away."""
        patterns = [self._subjects.console(noun) for noun in NOUNS]
        while not service.stopping.is_set():
            try:
                start = self._position + 1 if self._position else "all"
                stream = self._subjects.console_stream
                async for message in self._bus.follow(stream, patterns, start):
                    self._take(message.body, message.sequence)
                    async with self._advanced:
                        self._position = message.sequence
                        self._advanced.notify_all()
            except BusError as error:
                log.warning("rules and channels cannot be followed, trying again: %s", error)
            await service.pause(_RETRY_SECONDS)

    async def store(self, event: Event, version: int | None = None) -> int:
        """Stores an event, and waits a moment until it is read again; returns its sequence.

        Args:
            event: about a rule, a channel, a silence or an alert.
            version: of the rule that it changes, as the caller has seen it; None: whatever it is.

        Raises:
            WrongSequence: the rule has another version.
        """
        outgoing = self._outgoing(event)
        if version is not None and isinstance(event, AlertRuleSaved | AlertRuleRemoved):
            every = self._subjects.console(event.noun, event.name)
            outgoing = msgspec.structs.replace(outgoing, expect=Expect(version, every))
        sequence = await self._bus.append(outgoing)
        if not await self._has_read(sequence, _READ_SECONDS):
            log.debug("event %d of the console is not read yet", sequence)
        return sequence

    async def reached(self, sequence: int) -> None:
        """Waits a moment until an event is read that another part has stored."""
        await self._has_read(sequence, _READ_SECONDS)

    async def store_all(self, events: Sequence[Event]) -> None:
        """Stores some events in order, and waits for nothing else. Raises BusError."""
        for answer in await self._bus.append_many([self._outgoing(event) for event in events]):
            if isinstance(answer, BusError):
                raise answer

    async def catch_up(self) -> None:
        """Waits until everything is read that is stored now.

        Raises:
            BusUnavailable: it was not read within half a minute.
        """
        stream = self._subjects.console_stream
        newest = [await self._bus.last(stream, self._subjects.console(noun)) for noun in NOUNS]
        last = max((stored.sequence for stored in newest if stored), default=0)
        if not await self._has_read(last, _CATCH_UP_SECONDS):
            raise BusUnavailable(f"rules and channels are read until {self._position} of {last}")

    def was_sent(self, notification: str, channel: str) -> bool:
        """Whether it is recorded that the channel took the message."""
        return (notification, channel, "sent") in self.notifications

    async def _has_read(self, sequence: int, seconds: float) -> bool:
        async with self._advanced:
            return await within(
                seconds, self._advanced.wait_for(lambda: self._position >= sequence)
            )

    def _outgoing(self, event: Event) -> Outgoing:
        seconds = _KEPT_SECONDS.get(event.noun)
        headers = {"Nats-TTL": f"{seconds}s"} if seconds else {}
        return Outgoing(self._subjects.console_event(event), encode(event), headers)

    def _take(self, body: bytes, sequence: int) -> None:
        try:
            event = _EVENTS.decode(body)
            if not isinstance(event, Event):
                return  # of a later version
            self._apply(event, sequence)
        except (MalformedEvent, msgspec.ValidationError, ValueError) as error:
            log.warning("event %d of the console cannot be read: %s", sequence, error)
            return
        self._changed(event)

    def _apply(self, event: Event, sequence: int) -> None:
        match event:
            case AlertRuleSaved():
                self.rules[event.name] = _convert(event.definition, Rule)
                self.versions["rule", event.name] = sequence
            case AlertRuleRemoved():
                self.rules.pop(event.name, None)
                self.versions["rule", event.name] = sequence
            case AlertChannelSaved():
                self.channels[event.name] = _convert(event.definition, Channel)
                self.versions["channel", event.name] = sequence
            case AlertChannelRemoved():
                self.channels.pop(event.name, None)
            case SilenceSet():
                kind: Any = Window if "lasts_seconds" in event.definition else Silence
                self.silences[event.name] = _convert(event.definition, kind)
            case SilenceEnded():
                self.silences.pop(event.name, None)
            case MuteEvent():
                muted_functions.apply(self.muted, event)
                self.muted_at = sequence
            case AlertAcknowledged() | AlertResolveRequested():
                self.acts.append((sequence, event))
            case _:
                self._remember(event)

    def _remember(self, event: Event) -> None:
        match event:
            case AlertFired() if event.incident not in self.history:
                self.history[event.incident] = Past(
                    alert=event.alert,
                    incident=event.incident,
                    rule=event.rule,
                    severity=event.severity,
                    labels=event.labels,
                    text=event.text,
                    advice=event.advice,
                    link=event.link,
                    fired_at=event.at,
                )
                if len(self.history) > MOST_HISTORY:
                    self.history.popitem(last=False)
            case AlertResolved() if event.incident in self.history:
                self.history[event.incident] = msgspec.structs.replace(
                    self.history[event.incident],
                    resolved_at=event.at,
                    seconds=event.seconds,
                    resolved_by=event.by,
                )
            case AlertNotified():
                key = (event.notification, event.channel, event.result)
                self.notifications.setdefault(key, event)
                if len(self.notifications) > MOST_NOTIFICATIONS:
                    self.notifications.popitem(last=False)


def _convert(definition: dict[str, Any], kind: Any) -> Any:
    return msgspec.convert(definition, kind)
