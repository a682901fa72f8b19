"""What was measured lately, where a broker is in reach."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import msgspec

from penstock.bus.access import NotPermitted
from penstock.bus.protocol import BusError
from penstock.cli.output import note
from penstock.cli.session import Session
from penstock.config import ConfigError, Settings
from penstock.events.envelope import Event, MalformedEvent, UnknownEvent, utc_now
from penstock.events.snapshot import SNAPSHOTS, HostSnapshot, PoolSnapshot
from penstock.events.subjects import Subjects
from penstock.views import lookback

PATIENCE_SECONDS = 1.0
HOST_AGE = timedelta(seconds=60)
"""A host that said nothing for longer is not counted on."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The last snapshots by name; of hosts those that are there."""

    pools: dict[str, PoolSnapshot] = {}
    hosts: dict[str, HostSnapshot] = {}


def ask(session: Session) -> Measured | None:
    """None where no broker answers at once: that is said, and is no error."""
    try:
        return asyncio.run(_ask(session, session.reachable_settings()))
    except NotPermitted as error:
        note(f"nothing measured: {error}; start times are assumed")
        return None
    except (ConfigError, BusError):
        note("nothing measured: no broker answers; start times are assumed")
        return None


async def _ask(session: Session, settings: Settings) -> Measured:
    subjects, found = Subjects(settings.prefix), Measured()
    stream = subjects.snapshots_stream
    async with session.bus(settings, PATIENCE_SECONDS) as bus:
        for subject in (subjects.pool_snapshot("*"), subjects.host_snapshot("*")):
            for stored in await lookback.latest(bus, stream, subject):
                with suppress(MalformedEvent):
                    _take(SNAPSHOTS.decode(stored.body), found)
    return found


def _take(snapshot: Event | UnknownEvent, found: Measured) -> None:
    if isinstance(snapshot, PoolSnapshot):
        found.pools[snapshot.pool] = snapshot
    elif isinstance(snapshot, HostSnapshot) and utc_now() - snapshot.at < HOST_AGE:
        found.hosts[snapshot.host] = snapshot
