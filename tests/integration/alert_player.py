"""Plays events to consoles that lead alerts and are killed; the consoles' time is theirs.

Two rules show how far the leading console is: a health event and a snapshot, stored last, set and
end their alerts in turn.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.integration.alert_receivers import Receivers
from tests.waiting import eventually

from penstock.bus.nats import NatsBus
from penstock.bus.protocol import Outgoing
from penstock.config import Settings
from penstock.console.alerts.record import KIND, LEASE, RECORD, Record, parse
from penstock.console.alerts.sealing import Sealing
from penstock.console.core.alerts import rules
from penstock.console.core.alerts.channels import Channel, Secrets
from penstock.console.core.alerts.rules import Rule
from penstock.console.core.alerts.states import Alert
from penstock.events.alerting import (
    ALERT_EVENTS,
    AlertChannelSaved,
    AlertFired,
    AlertResolved,
    AlertRuleSaved,
)
from penstock.events.envelope import Event, encode
from penstock.events.health import HealthChanged
from penstock.events.snapshot import PoolSnapshot
from penstock.events.subjects import Subjects
from penstock.runtime import children
from penstock.runtime.children import Child
from penstock.runtime.lease import LeaseRecord

EVENT_MARK = Rule(
    id="event-mark", name="mark", condition=rules.Health(component="mark"), for_seconds=0,
    keep_seconds=0,
)  # fmt: skip
SNAPSHOT_MARK = Rule(
    id="snapshot-mark", name="mark", for_seconds=0, keep_seconds=0,
    condition=rules.Expression(text="waiting > 0", pool="mark"),
)  # fmt: skip
_MARKS = (EVENT_MARK.id, SNAPSHOT_MARK.id)
_STATES = ("healthy", "degraded")
_AT_ONCE = 500


class Change(NamedTuple):
    """A change of an alert by the history: its rule, what it is about, and when."""

    kind: str
    rule: str
    about: str
    at: datetime


class Player:
    """Plays events to consoles that are killed.

    Attributes:
        kills: how many leaders were killed.
        record: what the leader stored last.
    """

    def __init__(self, bus: NatsBus, settings: Settings, folder: Path, to: Receivers) -> None:
        self._bus, self._settings, self._folder, self._to = bus, settings, folder, to
        self._subjects = Subjects(settings.prefix)
        self._children: dict[str, Child] = {}
        self._started = self.kills = 0
        self._is_marked = dict.fromkeys(_MARKS, False)
        self.record = Record()

    async def configure(self, saved: Iterable[Rule], fallbacks: Mapping[str, str]) -> None:
        """Saves rules, and their channels: ``mail`` by SMTP, the others webhooks.

        Args:
            fallbacks: channels that have one, and which.
        """
        saved = list(saved)
        named = {name for rule in saved for name in rule.channels} | set(fallbacks.values())
        for name in sorted(named):
            await self._channel(name, fallbacks.get(name, ""))
        for rule in (*saved, EVENT_MARK, SNAPSHOT_MARK):
            definition = msgspec.to_builtins(rule)
            await self._decide(AlertRuleSaved(name=rule.id, definition=definition))

    async def _channel(self, name: str, fallback: str) -> None:
        kind: Any = "webhook"
        url = f"http://127.0.0.1:{self._to.http_port}/{name}"
        if name == "mail":
            kind, server = "apprise", f"127.0.0.1:{self._to.smtp_port}"
            url = f"mailto://{server}/?from=a@example.org&to=b@example.org&mode=insecure"
        box = Sealing("", self._folder).seal(name, Secrets(url=url))
        channel = Channel(id=name, name=name, kind=kind, sealed=box, fallback=fallback)
        await self._decide(AlertChannelSaved(name=name, definition=msgspec.to_builtins(channel)))

    async def _decide(self, event: Event) -> None:
        await self._bus.append(Outgoing(self._subjects.console_event(event), encode(event)))

    # --- consoles ---------------------------------------------------------------------------------
    def start(self) -> None:
        """Starts a further console."""
        self._started += 1
        holder = self._folder / f"holder-{self._started}"
        tree = {
            "prefix": self._settings.prefix,
            "nats": {"url": self._settings.nats.url},
            "console": {"alert_networks": ["127.0.0.0/8"]},
        }
        order = {"settings": tree, "folder": str(self._folder), "holder": str(holder)}
        argv = [sys.executable, "-m", "tests.integration.alert_process", json.dumps(order)]
        log = self._folder / f"console-{self._started}.log"
        self._children[str(holder)] = children.start(argv, name=holder.name, log=log)

    def stop(self) -> None:
        """Ends all consoles."""
        for child in self._children.values():
            child.end(10.0)

    async def kill_leader(self) -> None:
        """Kills the console that leads, and starts another."""
        subject = self._subjects.state(KIND, LEASE)
        stored = await self._bus.last(self._subjects.state_stream, subject)
        assert stored
        leads = msgspec.json.decode(stored.body, type=LeaseRecord).holder
        child = self._children.pop(next(name for name in self._children if _holder(name) == leads))
        child.signal(signal.SIGKILL)
        await child.ended()
        self.kills += 1
        self.start()

    # --- time -------------------------------------------------------------------------------------
    async def store(self, events: Sequence[Event]) -> None:
        """Stores snapshots and events."""
        messages = [Outgoing(self._subject(event), encode(event)) for event in events]
        for first in range(0, len(messages), _AT_ONCE):
            answers = await self._bus.append_many(messages[first : first + _AT_ONCE])
            assert all(isinstance(answer, int) for answer in answers), answers

    def _subject(self, event: Event) -> str:
        if isinstance(event, PoolSnapshot):
            return self._subjects.pool_snapshot(event.pool)
        return self._subjects.event(event)

    def clock(self, at: datetime) -> PoolSnapshot:
        """A snapshot that says no more than what time it is."""
        waiting = int(self._is_marked[SNAPSHOT_MARK.id])
        return PoolSnapshot(pool="mark", queues=("mark",), waiting=waiting, at=at)

    async def pass_until(self, at: datetime, marks: Sequence[str] = _MARKS) -> None:
        """Waits until the leader has acted on all that was stored until ``at``.

        Args:
            marks: of the streams of events and snapshots, or of one of them.
        """
        for name in marks:
            former, state = (_STATES[self._is_marked[name] ^ turned] for turned in (False, True))
            self._is_marked[name] ^= True
            if name == EVENT_MARK.id:
                event = HealthChanged(component="mark", state=state, before=former, at=at)
                await self.store([event])
            else:
                await self.store([self.clock(at)])
        try:
            await eventually(partial(self._is_past, at.timestamp()), 60)
        except AssertionError as error:
            words = [child.last_words() for child in self._children.values()]
            raise AssertionError(
                f"{at} is not past; {self._to.held} held, {self.record.outgoing} "
                "under way\n" + "\n".join(words)
            ) from error

    async def _is_past(self, at: float) -> bool:
        """Whether the leader has seen the marks, and begins no further attempt until then."""
        subject = self._subjects.state(KIND, RECORD)
        stored = await self._bus.last(self._subjects.state_stream, subject)
        self.record = parse(stored) if stored else Record()
        seen = {name: self.alert(name, is_met=True) is not None for name in _MARKS}
        first = {one.channel: one for one in reversed(self.record.outgoing)}  # others wait for it
        channels = {name for name, one in first.items() if one.next_at <= at} - self._to.held
        return seen == self._is_marked and not channels

    # --- alerts -----------------------------------------------------------------------------------
    def alert(self, rule: str, **fields: Any) -> Alert | None:
        """The alert of a rule that has these fields."""
        return next(
            (
                one
                for one in self.record.states.alerts.values()
                if one.rule == rule
                and all(getattr(one, name) == value for name, value in fields.items())
            ),
            None,
        )

    async def history(self, of: Collection[str]) -> list[Change]:
        """When alerts of some rules fired and were resolved."""
        stored = await self._bus.history(
            self._subjects.console_stream, self._subjects.console("alert"), limit=10_000
        )
        about: dict[str, tuple[str, str]] = {}
        changes = []
        for event in (ALERT_EVENTS.decode(message.body) for message in stored):
            if isinstance(event, AlertFired) and event.rule in of:
                about[event.incident] = event.rule, next(iter(event.labels.values()))
                changes.append(Change("firing", *about[event.incident], event.at))
            elif isinstance(event, AlertResolved) and event.incident in about:
                changes.append(Change("resolved", *about[event.incident], event.at))
        return changes


def _holder(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""
