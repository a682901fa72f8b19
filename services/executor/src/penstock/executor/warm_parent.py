"""The warm parent as its executor sees it: kept alive, sent assignments, its reports received."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.config import Settings
from penstock.runtime import children
from penstock.runtime.interpreter import module_command
from penstock.runtime.supervised import Backoff, Supervised
from penstock.runtime.workers import warm_parent_protocol as protocol
from penstock.runtime.workers.assignment import Assignment
from penstock.runtime.workers.warm_parent_protocol import Order, Ready, Warm
from penstock.telemetry import lines
from penstock.telemetry.collector import endpoint_of

log = logging.getLogger("penstock.executor")

COMMAND = tuple(module_command("penstock.worker.warm_parent.parent"))
WARM_SECONDS = 120.0
"""An author's module that takes longer to import blocks all workers: the parent is started anew."""
_BACKOFF = Backoff(first_seconds=0.5, longest_seconds=30.0)


class Listener(Protocol):
    """Is notified what becomes of orders; calls come in the order in which it happened."""

    def forked(self, worker: str, pid: int) -> None: ...

    def not_forked(self, worker: str, error: str) -> None: ...

    def exited(self, pid: int, code: int) -> None: ...


class WarmParent:
    """One warm parent at a time, another when it dies.

    Args:
        command: what is run; ``--fd N`` is added.
        answer_seconds: a parent that leaves an order unanswered so long is replaced.

    Attributes:
        first: whether the first parent became ready: what it could not import, by module, or a
            text that says how it ended.
    """

    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        command: Sequence[str] = COMMAND,
        answer_seconds: float = 15.0,
    ) -> None:
        self._answer_seconds = answer_seconds
        self._modules = _modules(settings)
        self._listener = listener
        self._command = command
        self._supervised = Supervised(
            "the warm parent", self._begin, log.error, attend=self._attend, backoff=_BACKOFF
        )
        self._channel: socket.socket | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ready = False
        self._pending: dict[str, Assignment] = {}
        self._workers: set[int] = set()
        self._is_retired = False
        self.first: asyncio.Future[dict[str, str] | str] = asyncio.Future()

    @property
    def pid(self) -> int | None:
        return self._supervised.pid

    def fork(self, assignment: Assignment) -> None:
        """Orders a worker; while the parent warms up, the order waits. The listener is notified."""
        self._pending[assignment.worker] = assignment
        if self._ready:
            self._order(assignment)

    async def run(self) -> None:
        """Keeps a warm parent until cancelled, or until a retired one's workers have ended."""
        await self._supervised.keep()

    def retire(self) -> None:
        """It forks only what was ordered, reports the ends of its workers, and ends after them."""
        self._is_retired = True
        self._supervised.retire()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._is_retired and not self._workers and not self._pending and self._writer:
            self._writer.close()  # at the end of its socket a parent without workers ends

    def _begin(self) -> children.Child:
        self._channel, inherited = socket.socketpair()
        with inherited:
            number = inherited.fileno()
            return children.start(
                [*self._command, "--fd", str(number)],
                name="warm parent",
                pass_fds=(number,),
                env={"PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", "ignore::FutureWarning")},
                parent_death_signal=0,  # it sees its socket close, and stays for its workers
            )

    async def _attend(self, child: children.Child) -> bool:
        """Serves one parent to its end; returns whether it became ready."""
        try:
            reader = await self._connect()
            while line := await reader.readline():
                self._receive(line)
        except (OSError, ValueError) as error:
            log.error("the warm parent cannot be used: %s", error)
        finally:
            was_ready = self._ready
            await self._release(child)
        return was_ready

    async def _connect(self) -> asyncio.StreamReader:
        reader, self._writer = await asyncio.open_unix_connection(
            sock=self._channel, limit=protocol.MAX_LINE_BYTES
        )
        level = logging.getLevelName(log.getEffectiveLevel())
        self._send(Order(warm=Warm(self._modules, log_level=level, log_json=lines.are_json())))
        self._expect(lambda: self._ready, WARM_SECONDS)
        return reader

    async def _release(self, child: children.Child) -> None:
        """Ends the parent (its workers live on) and gives up the orders it did not answer."""
        if not self.first.done():
            self.first.set_result("the process that imports it ended, or did not answer")
        self._ready = False
        self._workers.clear()
        if self._writer:
            self._writer.close()
        await asyncio.shield(child.stop())
        self._writer = None
        pending, self._pending = self._pending, {}
        for worker in pending:
            self._listener.not_forked(worker, "the warm parent ended")

    def _send(self, order: Order) -> None:
        if self._writer:
            self._writer.write(protocol.line(order))

    def _receive(self, line: bytes) -> None:
        report = protocol.read_report(line)
        if ready := report.ready:
            self._became_ready(ready)
        if forked := report.forked:
            self._pending.pop(forked.worker, None)
            self._workers.add(forked.pid)
            self._listener.forked(forked.worker, forked.pid)
        if failed := report.failed:
            self._pending.pop(failed.worker, None)
            self._listener.not_forked(failed.worker, failed.error)
        if exited := report.exited:
            self._workers.discard(exited.pid)
            self._listener.exited(exited.pid, exited.code)
        if refused := report.refused:
            log.error("the warm parent could not read an order: %s", refused.error)
        self._end_if_done()

    def _became_ready(self, ready: Ready) -> None:
        self._ready = True
        if not self.first.done():
            self.first.set_result(ready.failures)
        log.info("warm parent %d is ready after %.2f s", ready.pid, ready.seconds)
        for module, error in ready.failures.items():
            log.error("preload of module %s failed: %s; workers start without it", module, error)
        for assignment in self._pending.values():
            self._order(assignment)

    def _order(self, assignment: Assignment) -> None:
        self._send(Order(spawn=assignment))
        self._expect(lambda: assignment.worker not in self._pending, self._answer_seconds)

    def _expect(self, came: Callable[[], bool], seconds: float) -> None:
        """Kills a parent that hangs; its orders are given up when its end is noticed."""
        child = self._supervised.child

        def look() -> None:
            if child and child is self._supervised.child and not came():
                log.error("the warm parent (%d) does not answer: killed", child.pid)
                child.signal(signal.SIGKILL)

        asyncio.get_running_loop().call_later(seconds, look)


def _modules(settings: Settings) -> tuple[str, ...]:
    """What is imported beside the platform: the authors' modules, and tracing where it is on."""
    tracing = endpoint_of(settings, os.environ) is not None
    return (*settings.jobs.modules, *(("penstock.telemetry.otlp.posting",) if tracing else ()))
