"""A console as a process of its own, over a broker, and a filled folder for it."""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from console_load import carried, in_batches, lives
from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import BusError, Outgoing
from penstock.cli import main as cli
from penstock.config.load import check
from penstock.console.read_models.store import Store
from penstock.console.web.scopes import Scope
from penstock.events.envelope import Event, encode
from penstock.events.job import JobEvent
from penstock.events.subjects import Subjects
from penstock.operations.api_tokens import digest, new_token
from penstock.runtime import children
from penstock.runtime.paths import free_port

_START_SECONDS = 30.0
_APPENDED_AT_ONCE = 5_000
_LIVES_SHARE = 0.02
"""Of filled jobs, the share that is folded from its single events."""


class ConsoleProcess:
    """A running console; a context manager that ends it.

    Args:
        url: of the broker.
        folder: of its files and its log.
        acts: whether requests carry a token for everything; without, they only read.

    Attributes:
        ready_seconds: from its start until it answered.
        ready_cpu_seconds: CPU time of these.
    """

    def __init__(self, url: str, folder: Path, *, acts: bool = False) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ready_seconds = self.ready_cpu_seconds = 0.0
        self._folder = folder
        self._environment = {
            "PENSTOCK_NATS__URL": url,
            "PENSTOCK_HTTP__ADDRESS": "",
            "PENSTOCK_CONSOLE__PORT": str(self.port),
            "PENSTOCK_CONSOLE__FOLDER": str(folder / "console"),
            "PENSTOCK_HOST__RUN_DIR": str(folder / "run"),
            "PENSTOCK_POOLS__REPORTS__SLA_SECONDS": "30",
            "PENSTOCK_POOLS__IMPORTS__SLA_SECONDS": "120",
            # As where pip installed it: its modules are compiled once, for all consoles here.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(folder.parent / "compiled"),
        }
        self._headers: dict[str, str] = {}
        if acts:
            token, file = new_token(), folder / "tokens"
            scopes = ",".join(scope for scope in Scope if scope is not Scope.PUBLIC)
            file.write_text(f"bench {scopes} {digest(token)}\n", "utf-8")
            self._headers["Authorization"] = f"Bearer {token}"
            self._environment |= {
                "PENSTOCK_CONSOLE__TOKENS_FILE": str(file),
                "PENSTOCK_CONSOLE__ALERT_NETWORKS": '["127.0.0.0/8"]',
            }

    def __enter__(self) -> Self:
        argv = [sys.executable, "-m", cli.__name__, "console"]
        began = time.perf_counter()
        self._child = children.start(
            argv, name="console", log=self._folder / "console.log", env=self._environment
        )
        self._process = psutil.Process(self._child.pid)
        try:
            while self.get("/health") is None:
                if (
                    self._child.exit_code is not None
                    or time.perf_counter() - began > _START_SECONDS
                ):
                    raise self._child.failed("does not answer")
                time.sleep(0.005)
        except BaseException:
            self._child.end()
            raise
        self.ready_seconds = time.perf_counter() - began
        self.ready_cpu_seconds = self.cpu_seconds
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.end()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It does nothing in the block, as one that hangs."""
        self._child.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._child.signal(signal.SIGCONT)

    @property
    def cpu_seconds(self) -> float:
        """Of the process, user and system, since its start."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    @property
    def memory_mib(self) -> dict[str, float]:
        """Resident in all, and without pages of files, which the kernel takes back at any time."""
        memory = self._process.memory_info()
        return {
            "resident_mib": round(memory.rss / 2**20),
            "without_files_mib": round((memory.rss - memory.shared) / 2**20),
        }

    def get(self, path: str) -> Any:
        """The API's answer; None while no server listens."""
        try:
            return self.send("GET", path)
        except OSError:
            return None

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """The API's answer.

        Raises:
            RuntimeError: it is none of success. OSError: no server listens.
        """
        headers = {**self._headers, "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            encoded = None if body is None else json.dumps(body)
            connection.request(method, f"/api/v1{path}", encoded, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status >= http.HTTPStatus.BAD_REQUEST:
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]!r}")
            return json.loads(text) if text else None
        finally:
            connection.close()

    async def folded(self, sequence: int, most_seconds: float) -> float:
        """Waits until an event is folded; when, as of ``time.perf_counter``.

        Raises:
            TimeoutError: it was not within so long.
        """
        async with asyncio.timeout(most_seconds):
            while True:
                health = await asyncio.to_thread(self.get, "/health")
                if health and health["standing"]["position"] >= sequence:
                    return time.perf_counter()
                await asyncio.sleep(0.02)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[NatsBus]:
    """A connection to a broker, whose streams are made."""
    bus = await connect(check({"nats": {"url": url}}), makes_streams=True)
    try:
        yield bus
    finally:
        await bus.close()


async def append(bus: NatsBus, events: Sequence[Event]) -> int:
    """Stores events in the log; the sequence of the last.

    Raises:
        BusError: one is not stored.
    """
    subjects, last = Subjects(), 0
    for start in range(0, len(events), _APPENDED_AT_ONCE):
        part = events[start : start + _APPENDED_AT_ONCE]
        messages = [Outgoing(subjects.event(event), encode(event)) for event in part]
        for stored in await bus.append_many(messages):
            if isinstance(stored, BusError):
                raise stored
            last = max(last, stored)
    return last


def fill(folder: Path, jobs: int) -> float:
    """Rows for so many jobs, folded as the console does; seconds that it took.

    Most jobs are one event, that of a job whose history has left the log: the row is the same, in
    a third of the time.
    """
    whole = round(jobs * _LIVES_SHARE)
    return fold_all(folder, carried(jobs - whole), lives(whole, seed=2))


def fold_all(folder: Path, *logs: Iterator[JobEvent]) -> float:
    """Folds some logs one after another; seconds that it took.

    The position is 0 in the end: the rows belong to no log, and a console over an empty one leaves
    them as they are.
    """
    began = reported_at = time.perf_counter()
    store, done = Store(folder / "console"), 0
    for log in logs:
        store.set_fact("position", "0")
        for batch in in_batches(log):
            store.apply(batch)
            done += len(batch)
            if time.perf_counter() - reported_at > 10.0:
                reported_at = time.perf_counter()
                print(f"filling: {done:,} events folded", file=sys.stderr)
    store.set_fact("position", "0")
    folded = time.perf_counter()
    index_all(store)
    print(f"texts indexed in {time.perf_counter() - folded:.0f} s", file=sys.stderr)
    store.close()
    return folded - began


def index_all(store: Store) -> None:
    """Indexes all texts, as the console does behind its fold."""
    assert store.texts is not None
    has_more = True
    while has_more:
        last, has_more = store.texts.index_some()
        store.forget_marks(last)


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p99 and the largest, in milliseconds."""
    ordered = sorted(seconds)
    return {
        "p50_ms": round(statistics.median(ordered) * 1000, 2),
        "p99_ms": round(ordered[math.ceil(0.99 * len(ordered)) - 1] * 1000, 2),
        "max_ms": round(ordered[-1] * 1000, 2),
    }
