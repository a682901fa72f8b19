"""Reloads the job code of this host: at SIGHUP, and as ``penstock reload`` requests it.

::

    importing ──► replacing ──► done
        │  a new warm parent      workers are started from it, beside the old ones, which end as
        ▼  imports the code       their replacements are ready
      failed: the old workers, and the old warm parent, go on
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock.bus.protocol import Bus, BusError, Subscription
from penstock.events.envelope import new_id
from penstock.events.reloading import ReloadReported, ReloadRequested
from penstock.events.subjects import Subjects, check_name
from penstock.executor.core.facts import CodeReloaded
from penstock.executor.executor import Executor
from penstock.executor.reloading import reload_record
from penstock.executor.reloading.reload_record import ReloadRecord
from penstock.executor.reloading.warm_parents import Spawn
from penstock.runtime.tasks import within

log = logging.getLogger("penstock.executor")

_LOOK_SECONDS = 0.2
_MAX_REQUEST_BYTES = 100_000
_ERROR_LENGTH = 2_000
_REMEMBERED = 64
"""Earlier reloads, whose requests may still come."""


class Reloads:
    """The reloads of this host, one at a time: a newer one takes the place of an older one.

    Args:
        bus: a connection.
        subjects: of the installation.
        executor: whose workers are replaced.
        run_dir: where the last reload is recorded, so that a restarted executor continues it.
        pools: names of the host's pools.
        spawn: runs a loop beside the others of the service.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        executor: Executor,
        run_dir: Path,
        *,
        pools: Collection[str],
        spawn: Spawn,
    ) -> None:
        self._bus, self._subjects, self._executor = bus, subjects, executor
        self._run_dir, self._pools, self._spawn = run_dir, frozenset(pools), spawn
        self._host = executor.fleet.host
        self._last = reload_record.read(run_dir)
        self._requested = asyncio.Event()

    @property
    def error(self) -> str:
        """Why the last reload failed; empty where it did not."""
        return self._last.error if self._last else ""

    def take_pools(self, pools: Collection[str]) -> None:
        """New names of the host's pools, after its settings were reloaded."""
        self._pools = frozenset(pools)

    async def open(self) -> Subscription:
        """Handles requests from now on."""
        subject = self._subjects.reload_requested(self._host)
        return await self._bus.listen(subject, self._on_request)

    async def _on_request(self, _: str, body: bytes) -> None:
        try:
            if len(body) > _MAX_REQUEST_BYTES:
                raise ValueError(f"it has {len(body)} bytes")
            request = msgspec.json.decode(body, type=ReloadRequested)
            subject = self._subjects.reload_reported(check_name("reload", request.id))
        except (ValueError, RecursionError) as error:  # also BadName
            log.warning("a request to reload is ignored: %s", error)
            return
        self.begin(request)
        with suppress(BusError):  # the request is repeated
            await self._bus.signal(subject, msgspec.json.encode(self.report(request.id)))

    def begin(self, request: ReloadRequested | None = None) -> None:
        """Begins a reload, unless it has begun before.

        Args:
            request: None for one of this host alone.
        """
        request = request or ReloadRequested(id=new_id())
        last = self._last
        earlier = (*last.earlier, last.id)[-_REMEMBERED:] if last else ()
        if request.id in earlier:
            return
        log.info("reload %s of the job code was requested", request.id)
        if last and last.is_open:
            log.info("reload %s is superseded", last.id)
        record = ReloadRecord(id=request.id, pools=request.pools, earlier=earlier)
        if unknown := sorted(set(request.pools) - self._pools):
            names = ", ".join(repr(name[:80]) for name in unknown[:10])
            record = replace(record, state="failed", error=f"no pool here is called {names}")
        self._keep(record)
        self._requested.set()

    def report(self, request_id: str) -> ReloadReported:
        """How far this host is with a reload."""
        last = self._last
        if last is None or last.id != request_id:
            return ReloadReported(id=request_id, host=self._host, state="superseded")
        return ReloadReported(
            id=last.id,
            host=self._host,
            state=last.state,
            workers=last.workers,
            left=self._left() if last.state == "replacing" else 0,
            error=last.error,
        )

    async def run(self) -> None:
        """Carries out what is requested; first what an earlier executor of this host had begun."""
        if self._last and self._last.is_open:
            log.info("reload %s is continued", self._last.id)
            importing = self._executor.warm_parents.failure()
            await self._carry_out(self._last, importing, only_adopted=True)
        while True:
            await self._requested.wait()
            self._requested.clear()
            if self._last and self._last.is_open:
                parents = self._executor.warm_parents
                await self._carry_out(self._last, parents.replace(self._spawn))

    async def _carry_out(
        self, record: ReloadRecord, importing: Awaitable[str], only_adopted: bool = False
    ) -> None:
        failure = await importing
        if self._requested.is_set():  # a newer reload: the code may have changed since
            return
        if failure:
            log.error("reload failed, the old workers go on: %s", failure)
            self._keep(replace(record, state="failed", error=failure[:_ERROR_LENGTH]))
            return
        pools = frozenset(record.pools) or self._pools
        self._executor.learn(CodeReloaded(pools=pools, only_adopted=only_adopted))
        record = replace(record, state="replacing", workers=self._left())
        self._keep(record)
        while self._left():
            if await within(_LOOK_SECONDS, self._requested.wait()):
                return
        log.info("reload %s is done: %d workers were replaced", record.id, record.workers)
        self._keep(replace(record, state="done"))

    def _left(self) -> int:
        return sum(worker.outdated for worker in self._executor.fleet.workers.values())

    def _keep(self, record: ReloadRecord) -> None:
        self._last = record
        reload_record.write(self._run_dir, record)
        self._executor.changed.set()
