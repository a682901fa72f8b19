"""The latest measurements, where a broker can be reached."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import msgspec

from penstock.bus import lookback
from penstock.bus.access import NotPermitted
from penstock.bus.protocol import BusError
from penstock.cli.output import note
from penstock.cli.session import Session
from penstock.config import ConfigError, Settings
from penstock.events.envelope import Event, MalformedEvent, UnknownEvent, utc_now
from penstock.events.snapshot import SNAPSHOTS, HostSnapshot, PoolSnapshot
from penstock.events.subjects import Subjects

PATIENCE_SECONDS = 1.0
HOST_AGE = timedelta(seconds=60)
"""A host whose last snapshot is older does not count."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The last snapshots of pools and of living hosts, by name."""

    pools: dict[str, PoolSnapshot] = {}
    hosts: dict[str, HostSnapshot] = {}


def read(session: Session) -> Measured | None:
    """Reads them; None where no broker answers at once, which is noted and is no error."""
    try:
        return asyncio.run(_read(session, session.reachable_settings()))
    except NotPermitted as error:
        note(f"nothing measured: {error}; start times are assumed")
        return None
    except (ConfigError, BusError):
        note("nothing measured: no broker answers; start times are assumed")
        return None


async def _read(session: Session, settings: Settings) -> Measured:
    subjects, measured = Subjects(settings.prefix), Measured()
    stream = subjects.snapshots_stream
    async with session.bus(settings, PATIENCE_SECONDS) as bus:
        for subject in (subjects.pool_snapshot("*"), subjects.host_snapshot("*")):
            for stored in await lookback.latest(bus, stream, subject):
                with suppress(MalformedEvent):
                    _take(SNAPSHOTS.decode(stored.body), measured)
    return measured


def _take(snapshot: Event | UnknownEvent, measured: Measured) -> None:
    if isinstance(snapshot, PoolSnapshot):
        measured.pools[snapshot.pool] = snapshot
    elif isinstance(snapshot, HostSnapshot) and utc_now() - snapshot.at < HOST_AGE:
        measured.hosts[snapshot.host] = snapshot
