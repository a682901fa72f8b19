"""The warm parent as its executor sees it: kept alive, sent assignments, heard about exits."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from penstock.config import Settings
from penstock.runtime import children
from penstock.runtime.interpreter import module_command
from penstock.runtime.workers.assignment import Assignment
from penstock.telemetry import lines
from penstock.telemetry.collector import endpoint_of

log = logging.getLogger("penstock.executor")

COMMAND = tuple(module_command("penstock.worker.warm_parent.parent"))
_LINE_LIMIT = 1 << 20
_WARM_SECONDS = 120.0
"""An author's module that takes longer to import blocks all workers: the parent is started anew."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0


class _Ready(msgspec.Struct, frozen=True):
    pid: int
    seconds: float
    failures: dict[str, str] = {}
    threads: tuple[str, ...] = ()


class _Forked(msgspec.Struct, frozen=True):
    worker: str
    pid: int


class _Failed(msgspec.Struct, frozen=True):
    worker: str
    error: str


class _Exited(msgspec.Struct, frozen=True):
    pid: int
    code: int


class _Refused(msgspec.Struct, frozen=True):
    error: str


class _Word(msgspec.Struct, frozen=True):
    """A line from the warm parent: one of these."""

    ready: _Ready | None = None
    forked: _Forked | None = None
    failed: _Failed | None = None
    exited: _Exited | None = None
    refused: _Refused | None = None


class Listener(Protocol):
    """Who is told what becomes of orders; calls come in the order in which things happened."""

    def forked(self, worker: str, pid: int) -> None: ...

    def not_forked(self, worker: str, error: str) -> None: ...

    def exited(self, pid: int, code: int) -> None: ...


class WarmParent:
    """One warm parent at a time, another when it dies.

    Args:
        command: what is run; ``--fd N`` is added.
        answer_seconds: a parent that leaves an order unanswered so long is replaced.
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
        self._child: children.Child | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ready = False
        self._pending: dict[str, Assignment] = {}

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def fork(self, assignment: Assignment) -> None:
        """Orders a worker; while the parent warms up, the order waits. The listener is told."""
        self._pending[assignment.worker] = assignment
        if self._ready:
            self._order(assignment)

    async def run(self) -> None:
        """Keeps a warm parent until cancelled."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            if await self._serve_one():
                pause = _FIRST_PAUSE_SECONDS
            log.error("the warm parent ended; another starts in %.1f s", pause)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)

    async def _serve_one(self) -> bool:
        """The life of one parent; whether it became ready."""
        try:
            reader = await self._begin()
            while line := await reader.readline():
                self._hear(line)
        except (children.ChildFailed, OSError, ValueError) as error:
            log.error("the warm parent cannot be used: %s", error)
        finally:
            was_ready = self._ready
            await self._end()
        return was_ready

    async def _begin(self) -> asyncio.StreamReader:
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._child = children.start(
                [*self._command, "--fd", str(number)],
                name="warm parent",
                pass_fds=(number,),
                env={"PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", "ignore::FutureWarning")},
                parent_death_signal=0,  # the end of its socket tells it; it looks after its workers
            )
        reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=_LINE_LIMIT)
        level = logging.getLevelName(log.getEffectiveLevel())
        how = {"log_level": level, "log_json": lines.are_json()}
        self._send({"warm": {"modules": self._modules, **how}})
        self._expect(lambda: self._ready, _WARM_SECONDS)
        return reader

    async def _end(self) -> None:
        """Lets the parent go (its workers live on) and gives up the orders it did not answer."""
        self._ready = False
        if self._writer:
            self._writer.close()
        if self._child:
            await asyncio.shield(self._child.stop())
        self._writer = self._child = None
        pending, self._pending = self._pending, {}
        for worker in pending:
            self._listener.not_forked(worker, "the warm parent ended")

    def _send(self, order: object) -> None:
        if self._writer:
            self._writer.write(msgspec.json.encode(order) + b"\n")

    def _hear(self, line: bytes) -> None:
        word = msgspec.json.decode(line, type=_Word)
        if word.ready:
            self._became_ready(word.ready)
        if word.forked:
            self._pending.pop(word.forked.worker, None)
            self._listener.forked(word.forked.worker, word.forked.pid)
        if word.failed:
            self._pending.pop(word.failed.worker, None)
            self._listener.not_forked(word.failed.worker, word.failed.error)
        if word.exited:
            self._listener.exited(word.exited.pid, word.exited.code)
        if word.refused:
            log.error("the warm parent could not read an order: %s", word.refused.error)

    def _became_ready(self, ready: _Ready) -> None:
        self._ready = True
        log.info("warm parent %d is ready after %.2f s", ready.pid, ready.seconds)
        for module, error in ready.failures.items():
            log.error("workers will lack module %s: %s", module, error)
        for assignment in self._pending.values():
            self._order(assignment)

    def _order(self, assignment: Assignment) -> None:
        self._send({"spawn": assignment})
        self._expect(lambda: assignment.worker not in self._pending, self._answer_seconds)

    def _expect(self, came: Callable[[], bool], seconds: float) -> None:
        """Kills a parent that hangs; its orders are given up when its end is noticed."""
        child = self._child

        def look() -> None:
            if child and child is self._child and not came():
                log.error("the warm parent (%d) does not answer: killed", child.pid)
                child.signal(signal.SIGKILL)

        asyncio.get_running_loop().call_later(seconds, look)


def _modules(settings: Settings) -> tuple[str, ...]:
    """What is imported beside the platform: the authors' modules, and tracing where it is on."""
    tracing = endpoint_of(settings, os.environ) is not None
    return (*settings.jobs.modules, *(("penstock.telemetry.posting",) if tracing else ()))
