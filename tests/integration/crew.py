"""Real worker processes: hired, signalled, watched; and the diary that their jobs write."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import time
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.integration.sample_jobs import QUEUE
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus, QueueDepth
from penstock.config import Settings
from penstock.config.topology import pools
from penstock.events.job import JobEvent
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.runtime import children
from penstock.runtime.workers.assignment import Assignment

_ROOT = Path(__file__).parents[2]
_FORK_SECONDS = 20.0


class WarmParent:
    """One for a test session; see `tests.integration.warm_workers`."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._channel, theirs = socket.socketpair()
        argv = [
            sys.executable,
            "-m",
            "tests.integration.warm_workers",
            "--fd",
            str(theirs.fileno()),
        ]
        self._child = children.start(
            argv, name="warm parent", log=log, cwd=_ROOT, pass_fds=[theirs.fileno()]
        )
        theirs.close()
        self._buffer = b""
        self.pids: dict[str, int] = {}
        self.exit_codes: dict[int, int] = {}

    def fork(self, assignment: Assignment) -> int:
        """A new worker's process id."""
        self._channel.sendall(msgspec.json.encode({"spawn": assignment}) + b"\n")
        deadline = time.monotonic() + _FORK_SECONDS
        while assignment.worker not in self.pids:
            assert time.monotonic() < deadline, self._child.failed("did not fork")
            self._hear(deadline - time.monotonic())
        return self.pids[assignment.worker]

    def exit_code(self, pid: int) -> int | None:
        self._hear(0)
        return self.exit_codes.get(pid)

    def _hear(self, seconds: float) -> None:
        self._channel.settimeout(seconds)
        with suppress(BlockingIOError, TimeoutError):
            while received := self._channel.recv(1 << 16):
                *lines, self._buffer = (self._buffer + received).split(b"\n")
                for line in lines:
                    self._learn(json.loads(line))
                self._channel.settimeout(0)

    def _learn(self, word: dict[str, Any]) -> None:
        if forked := word.get("forked"):
            self.pids[forked["worker"]] = forked["pid"]
        if exited := word.get("exited"):
            self.exit_codes[exited["pid"]] = exited["code"]

    def close(self) -> None:
        self._channel.close()
        self._child.end()


class Line(NamedTuple):
    name: str
    what: str
    pid: int


class Diary:
    """What jobs wrote down."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def lines(self, name: str = "") -> list[Line]:
        with suppress(FileNotFoundError), Path(self.path).open(encoding="utf-8") as file:
            found = [Line(a, b, int(c)) for a, b, c in (line.split() for line in file)]
            return [line for line in found if not name or line.name == name]
        return []

    def told(self, name: str) -> list[str]:
        return [line.what for line in self.lines(name)]

    def count(self, what: str) -> Counter[str]:
        return Counter(line.name for line in self.lines() if line.what == what)

    async def wait(self, name: str, *told: str, within: float = 15.0) -> list[Line]:
        """Until a job has told just this."""
        wanted = list(told)
        await eventually(lambda: self.told(name) == wanted, within, f"{name} telling {wanted}")
        return self.lines(name)


class Worker:
    """One worker process."""

    def __init__(self, parent: WarmParent, assignment: Assignment) -> None:
        self._parent = parent
        self.name = assignment.worker
        self.pid = parent.fork(assignment)

    def signal(self, number: int) -> None:
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    @property
    def exit_code(self) -> int | None:
        return self._parent.exit_code(self.pid)

    async def ended(self, within: float = 15.0) -> int:
        await eventually(lambda: self.exit_code is not None, within, f"end of {self.name}")
        code = self.exit_code
        assert code is not None
        return code


class Crew:
    """The workers of one test, a client, and a folder for gates and the diary."""

    def __init__(self, parent: WarmParent, settings: Settings, bus: Bus, folder: Path) -> None:
        self._parent = parent
        self.settings, self.bus, self.folder = settings, bus, folder
        self.subjects = Subjects(settings.prefix)
        self.client = Client(bus, prefix=settings.prefix)
        self.diary = Diary(folder / "diary")
        self.workers: list[Worker] = []
        self._lock = self._executor_lock()

    def _executor_lock(self) -> int:
        """Held as the executor holds it for as long as it lives."""
        run_dir = Path(self.settings.host.run_dir)
        run_dir.mkdir(exist_ok=True)
        lock = os.open(run_dir / "executor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def lose_executor(self) -> None:
        os.close(self._lock)
        self._lock = -1

    def hire(self, pool: str = QUEUE, burst: bool = False) -> Worker:
        assignment = Assignment(
            worker=f"{pool}-{uuid.uuid4().hex[:8]}",
            host=self.settings.host.name,
            pool=pool,
            queues=pools(self.settings)[pool].queues,
            run_dir=self.settings.host.run_dir,
            settings=self.settings,
            commanded_at=time.time(),
            burst=burst,
        )
        self.workers.append(Worker(self._parent, assignment))
        return self.workers[-1]

    def worker_of(self, line: Line) -> Worker:
        [found] = [worker for worker in self.workers if worker.pid == line.pid]
        return found

    # --- jobs -------------------------------------------------------------------------------------
    def gate(self, name: str = "gate") -> str:
        """A path that jobs wait for."""
        return str(self.folder / name)

    def open(self, name: str = "gate") -> None:
        Path(self.gate(name)).touch()

    async def ended(self, job_id: str, within: float = 20.0) -> JobView:
        return await self.client.wait(job_id, within)

    async def reached(self, job_id: str, state: State, within: float = 15.0) -> JobView:
        async def there() -> JobView | None:
            view = await self.client.job(job_id)
            return view if view.state is state else None

        return await eventually(there, within, f"job {state}")

    async def story(self, job_id: str) -> list[str]:
        view = await self.client.job(job_id)
        return [event.name for _, event in view.events if isinstance(event, JobEvent)]

    async def depth(self, queue: str = QUEUE) -> QueueDepth:
        await self.bus.ensure_queue(queue)
        return (await self.bus.depths())[queue]

    async def emptied(self, queue: str = QUEUE, within: float = 15.0) -> None:
        async def empty() -> bool:
            depth = await self.depth(queue)
            return depth.waiting == depth.claimed == 0

        await eventually(empty, within, "an empty queue")

    async def close(self) -> None:
        for worker in self.workers:
            worker.signal(signal.SIGKILL)
        for worker in self.workers:
            await worker.ended()
        if self._lock >= 0:
            os.close(self._lock)
        with suppress(Exception):
            await self.bus.close()


async def gather_crew(
    parent: WarmParent, make: MakeSettings, tables: dict[str, Any], folder: Path
) -> Crew:
    known = {
        "pools": {QUEUE: {"tries": 1}},
        "jobs": {
            "claim_seconds": 1,
            "cancel_grace_seconds": 0.2,
            "modules": ["tests.integration.sample_jobs"],
        },
    }
    for name, table in tables.items():
        known[name] = {**known.get(name, {}), **table}
    settings = make(**known)
    return Crew(parent, settings, await connect(settings, "test"), folder)
