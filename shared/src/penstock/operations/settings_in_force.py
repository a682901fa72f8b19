"""The settings that each running service works with: published by it, read by those who compare."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock.bus.protocol import Bus, Outgoing, Stored
from penstock.config import ConfigError, Settings
from penstock.config.load import check, set_by_variables
from penstock.config.reloading import Difference, Tree, differences, sparse, values
from penstock.config.topology import pools
from penstock.events.envelope import Instant, utc_now
from penstock.events.subjects import Subjects
from penstock.operations.process_identity import ProcessIdentity, own

EVERY_SECONDS = 20.0
"""Between two records of a service; one is stored at once when its settings change."""
FORGOTTEN_SECONDS = 3 * EVERY_SECONDS + 5.0
"""A service whose last record is older has ended."""
_MOST_BYTES = 256_000
_MOST_SERVICES = 10_000
_DAY = timedelta(days=1)


class SettingsInForce(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of a service runs with.

    Attributes:
        service: ``metrics``, ``decider``, ``executor`` or ``orchestrator``.
        host: name of its machine.
        pid: its process.
        at: when this was published.
        settings: what is not at its default, as nested tables without secrets; None where that is
            too large to be published.
        refused: why the settings were not reloaded when that was asked for last; empty otherwise.
        waiting: settings of the file that it takes over at its next start only.
        variables: dotted names of those that environment variables set; None from older versions.
        broker: the broker's address, without a secret; empty from older versions.
        ended: the process has ended.
        process: by which others on its machine see whether it lives; None from older versions.
    """

    service: str
    host: str
    pid: int
    at: Instant
    settings: dict[str, Any] | None = None
    refused: str = ""
    waiting: tuple[str, ...] = ()
    variables: tuple[str, ...] | None = None
    broker: str = ""
    ended: bool = False
    process: ProcessIdentity | None = None

    @property
    def name(self) -> str:
        """``decider on node-1``, for people."""
        return f"{self.service} on {self.host}"

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.service, self.host, self.pid)

    @property
    def has_died(self) -> bool:
        """Its process was on this machine, and is gone."""
        return self.process is not None and self.process.has_died

    def differences(self, file: Settings) -> list[Difference]:
        """The settings that differ from those of a file; none where they were not published."""
        return [] if self.settings is None else differences(sparse(file), self.settings)

    def held_by_variables(self, file: Settings) -> list[str]:
        """Settings that a file sets otherwise than an environment variable of this process does.

        A reload changes nothing of them; the process needs a restart. Of other machines' processes
        it is not known which file they read.
        """
        if self.settings is None or self.host != socket.gethostname():
            return []
        wanted, in_force = values(sparse(file)), values(self.settings)
        in_force |= {"nats.url": self.broker} if self.broker else {}
        return [
            name
            for name in self.variables or ()
            if name in wanted and name in in_force and wanted[name] != in_force[name]
        ]


class Announcer:
    """Publishes what one process runs with.

    Args:
        bus: of this process.
        service: its name.
        settings: those in force.
        waiting: dotted names of settings that wait for a restart.
    """

    def __init__(
        self, bus: Bus, service: str, settings: Settings, waiting: tuple[str, ...] = ()
    ) -> None:
        self._bus, self._service = bus, service
        self._subjects = Subjects(settings.prefix)
        self._host, self._pid, self._process = socket.gethostname(), os.getpid(), own()
        self.settings, self.waiting, self.refused = settings, waiting, ""

    async def publish(self, *, ended: bool = False) -> None:
        """Stores a record of the settings. Raises BusError."""
        # No reader compares [nats], and a monitoring address may hold a secret.
        every = sparse(self.settings)
        tree: Tree | None = {k: v for k, v in every.items() if k != "nats"}
        if len(msgspec.json.encode(tree)) > _MOST_BYTES:
            tree = None
        record = SettingsInForce(
            service=self._service,
            host=self._host,
            pid=self._pid,
            at=utc_now(),
            settings=tree,
            refused=self.refused,
            waiting=self.waiting,
            variables=tuple(set_by_variables(values(every), os.environ)),
            broker=every.get("nats", {}).get("url", ""),
            ended=ended,
            process=self._process,
        )
        await self._bus.append(Outgoing(self._subject(), msgspec.json.encode(record)))

    async def mark_dead(self) -> None:
        """Records the end of processes of this machine that were killed. Raises BusError."""
        pattern = self._subjects.state("settings", "*")
        stream = self._subjects.state_stream
        for stored in await self._bus.history(stream, pattern, _MOST_SERVICES):
            record = _read(stored)
            if record and not record.ended and record.has_died:
                ended = msgspec.structs.replace(record, ended=True)
                await self._bus.append(Outgoing(stored.subject, msgspec.json.encode(ended)))

    def _subject(self) -> str:
        """One for each process, so that two on one machine do not overwrite each other."""
        machine = "".join(char if char.isalnum() else "-" for char in self._host)[:40]
        return self._subjects.state("settings", f"{self._service}_{machine}_{self._pid}")


async def services(bus: Bus, subjects: Subjects) -> list[SettingsInForce]:
    """What each running process of a service works with, in alphabetical order. Raises BusError."""
    now, pattern = utc_now(), subjects.state("settings", "*")
    stored = await bus.history(subjects.state_stream, pattern, _MOST_SERVICES)
    records = [record for message in stored if (record := _read(message)) is not None]
    return sorted(
        (
            record
            for record in records
            if not record.ended
            and _age(record.at, now) <= FORGOTTEN_SECONDS
            and not record.has_died
        ),
        key=lambda record: record.key,
    )


async def decider_settings(bus: Bus, subjects: Subjects) -> Settings | None:
    """The settings of a running decider; None where none has published them. Raises BusError."""
    for record in await services(bus, subjects):
        if record.service == "decider" and record.settings is not None:
            with suppress(ConfigError):  # of another version
                settings = check(record.settings)
                pools(settings)
                return settings
    return None


async def forget_ended(bus: Bus, subjects: Subjects) -> None:
    """Removes records of processes that ended a day ago. Raises BusError."""
    pattern = subjects.state("settings", "*")
    for stored in await bus.history(subjects.state_stream, pattern, _MOST_SERVICES):
        if utc_now() - stored.at > _DAY:
            await bus.remove(subjects.state_stream, stored.subject, before=stored.sequence + 1)


def _age(at: datetime, now: datetime) -> float:
    return (now - at).total_seconds()


def _read(stored: Stored) -> SettingsInForce | None:
    try:
        return msgspec.json.decode(stored.body, type=SettingsInForce)
    except (ValueError, RecursionError):  # of another version
        return None
