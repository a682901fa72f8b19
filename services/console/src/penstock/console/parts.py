"""What endpoints and pages are given: the console's parts, made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import msgspec

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.console.access.control import AccessControl
from penstock.console.access.rights import Readable
from penstock.console.alerts.parts import Alerts
from penstock.console.bulk.parts import BulkActions
from penstock.console.computing.parts import Computing
from penstock.console.core.series import Points
from penstock.console.live.hub import Hub
from penstock.console.past.past import Past
from penstock.console.past.past_reads import PastReads
from penstock.console.read_models.databases import Databases
from penstock.console.read_models.fair_reads import FairReads, Remembered
from penstock.console.read_models.measurements import Measurements
from penstock.console.read_models.present import Present
from penstock.console.read_models.projection import Projection, Standing
from penstock.console.read_models.store import Snapshot
from penstock.console.web.access import ChangesWith
from penstock.events.envelope import new_id
from penstock.events.subjects import Subjects
from penstock.jobs.client import Client
from penstock.jobs.reading.handed_on import HandedOnReader

T = TypeVar("T")


@dataclass(frozen=True)
class Console:
    """All parts of a running console.

    Attributes:
        bus: for what lies in the streams alone: a job's own events.
        settings: of this process.
        store: rows that were folded from the event log.
        projection: keeps them current.
        present: pools, hosts and workers as they are now.
        hub: what pages that are open are sent.
        alerts: rules, channels, and what fires.
        measurements: pools and hosts over time.
        client: reads and changes jobs, workflows and schedules as a program does.
        control: accounts, tokens, sessions and the audit log.
        bulk: one act on many jobs, workflows, batches or graphs.
        history: reads what was at a past moment.
        readable: reads streams that the broker may refuse to this console's key.
        computing: what the decider's code answers, in child processes.
        handed_on: looks why jobs that could start have not.
    """

    bus: Bus
    settings: Settings
    store: Databases
    projection: Projection
    present: Present
    hub: Hub
    alerts: Alerts
    measurements: Measurements
    client: Client
    control: AccessControl
    bulk: BulkActions
    history: PastReads
    computing: Computing
    readable: Readable = field(default_factory=Readable)
    handed_on: HandedOnReader = field(init=False)
    boot_id: str = field(default_factory=new_id)
    _reads: FairReads = field(default_factory=FairReads)
    _remembered: Remembered = field(init=False)

    def __post_init__(self) -> None:
        remembered = Remembered(lambda: self.version(ChangesWith.LOG))
        object.__setattr__(self, "_remembered", remembered)
        object.__setattr__(self, "handed_on", HandedOnReader(self.bus, self.subjects))

    @property
    def subjects(self) -> Subjects:
        """Names of streams and subjects."""
        return Subjects(self.settings.prefix)

    @property
    def standing(self) -> Standing:
        """How current the rows are."""
        return self.projection.standing

    async def read(self, query: Callable[[Snapshot], T]) -> T:
        """Runs a query of the database in a thread, as of one moment.

        Raises:
            TooManyReads: the caller of the present request has too many under way.
        """

        def run() -> T:
            with self.store.reading() as rows:
                return query(rows)

        self.projection.pace.watch()
        return await self._reads.run(run)

    async def read_standing(self, query: Callable[[Snapshot], T]) -> tuple[T, Standing]:
        """The same, and how current the very rows are that the query saw."""
        read, position, as_of = await self.read(
            lambda rows: (query(rows), rows.position, rows.fact("as_of"))
        )
        standing = msgspec.structs.replace(
            self.standing,
            position=position,
            as_of=datetime.fromisoformat(as_of) if as_of else None,
        )
        return read, standing

    async def read_once(self, query: Callable[[Snapshot], T]) -> T:
        """The same, run once for all who ask until the rows change. ``query`` is a function."""
        return await self._remembered.answer(query, lambda: self.read(query))

    async def past(self, as_of: str) -> Past | None:
        """The installation at the moment that a request names; None for now.

        Raises:
            BadMoment: it names none, or one in the future.
            NotKept: what was then is not kept.
            BusError: the streams cannot be read.
        """
        moment = self.history.moment(as_of)
        return None if moment is None else await self.history.past(moment, self.read)

    async def points(
        self, kind: str, name: str, seconds: float, until: datetime | None = None
    ) -> Points:
        """So many seconds of a ``pool``, ``host`` or ``queue`` up to a moment, or to now."""
        end = None if until is None else until.timestamp()
        return await self.read(
            lambda rows: self.measurements.stored_points(rows, kind, name, seconds, end)
        )

    def version(self, source: ChangesWith) -> str:
        """Changes whenever an answer that is made of this source may."""
        standing = self.standing
        is_current = f"{standing.is_connected:d}"
        if source is ChangesWith.LOG:
            self.projection.pace.watch()
            rows = f"{self.store.generation}.{standing.position}.{self.alerts.book.muted_at}"
            return f"{self.boot_id[-12:]}-{rows}-{is_current}"
        return f"{self.boot_id[-12:]}-p{self.present.version}-{is_current}"

    def close(self) -> None:
        """Ends the threads and closes the database."""
        self._reads.close()
        self.bulk.close()
        self.control.close()
        self.projection.close()
        self.store.close()
