"""What happened, as it was stored; and how jobs are shown meanwhile."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from tests.histories import Entry
from tests.turnover.installation import Installation
from tests.turnover.living import EXPECTED, Living
from tests.turnover.traffic import MARK, Traffic
from tests.waiting import eventually

from penstock.bus.nats import NatsBus
from penstock.bus.protocol import BusError
from penstock.events.batch import BATCH_EVENTS, BatchCompleted, BatchFailed, Counts
from penstock.events.graph import GRAPH_EVENTS, GraphCancelled, GraphCompleted, GraphFailed
from penstock.events.job import JOB_EVENTS, JobCarried, JobRecovered
from penstock.jobs import Client
from penstock.jobs.errors import NotFound
from penstock.jobs.event_store.event_log import read_event
from penstock.verifying.jobs import ENDS

_SAMPLE_SECONDS, _COMMAND_SECONDS, _LOOK_SECONDS = 0.02, 8.0, 0.5
_LAG_SECONDS = 10.0
_SERIES_SECONDS = 10.0


class Recorder:
    """Follows the whole log.

    Attributes:
        histories: of all jobs but those that never ran. ended: jobs whose end was recorded.
        missed: messages that left the log before they were read: the verdict needs that to be 0.
        batches: counts of each batch that has ended.
        graphs: names of the ends of each graph; a graph that went well has one, GraphCompleted.
    """

    def __init__(self, bus: NatsBus, traffic: Traffic) -> None:
        self._bus, self._traffic = bus, traffic
        self.histories: dict[str, list[Entry]] = {}
        self.ended: set[str] = set()
        self.batches: dict[str, Counts] = {}
        self.graphs: dict[str, list[str]] = {}
        self.recovered = self.carried = self.missed = self.messages = 0

    async def run(self) -> None:
        stream, prefix = self._bus.subjects.events_stream, self._bus.subjects.prefix
        last = 0
        async for stored in self._bus.follow(stream, [f"{prefix}.events.>"], "all"):
            if last:
                self.missed += max(stored.sequence - last - 1, 0)
            last = self._traffic.recorded = stored.sequence
            self.messages += 1
            _, noun, key, _ = stored.subject.rsplit(".", 3)
            if noun == "batch":
                whole = read_event(stored, BATCH_EVENTS)
                if isinstance(whole, BatchCompleted | BatchFailed):
                    self.batches[key] = whole.counts
            if noun == "graph":
                step = read_event(stored, GRAPH_EVENTS)
                if isinstance(step, GraphCompleted | GraphFailed | GraphCancelled):
                    self.graphs.setdefault(key, []).append(step.name)
            if noun != "job" or key.startswith(MARK):
                continue
            event = read_event(stored, JOB_EVENTS)
            self.histories.setdefault(key, []).append((stored.sequence, event))
            self.recovered += isinstance(event, JobRecovered)
            self.carried += isinstance(event, JobCarried)
            if isinstance(event, ENDS):
                self.ended.add(key)


class Shown:
    """Asks how living jobs are, all the while, as a client and by the command line.

    Attributes:
        samples: by group. commands: by the command line. wrong: what was not as it must be.
        slowest_seconds: of the client's answers while the broker answered.
    """

    def __init__(
        self,
        client: Client,
        living: Living,
        installation: Installation,
        recorder: Recorder,
        seed: int,
    ) -> None:
        self._client, self._living, self._installation = client, living, installation
        self._recorder = recorder
        self._chance = random.Random(seed)
        self.samples: Counter[str] = Counter()
        self.commands = self.unanswered = 0
        self.wrong: list[str] = []
        self.slowest_seconds = 0.0
        self.is_released = False

    def _some_job(self) -> tuple[str, str]:
        groups = [name for name, ids in self._living.groups.items() if ids]
        group = self._chance.choice(groups)
        return group, self._chance.choice(self._living.groups[group])

    def _judge(self, group: str, job_id: str, state: str, by: str) -> None:
        if state not in EXPECTED[group]:
            self.wrong.append(f"{job_id}, {group}, is shown as {state} by {by}")

    async def _not_shown(self, job_id: str, why: str) -> None:
        """Wrong for a job that lives; of one that was released the history may be gone."""
        if self.is_released:
            with suppress(AssertionError):
                await eventually(lambda: job_id in self._recorder.ended, _LAG_SECONDS)
                return
        self.wrong.append(f"{job_id}, {why}")

    async def ask_client(self) -> None:
        """Until it is cancelled."""
        while True:
            group, job_id = self._some_job()
            began = time.monotonic()
            try:
                view = await self._client.job(job_id)
            except NotFound:
                await self._not_shown(job_id, f"{group}, is not known to a client")
            except BusError:
                self.unanswered += 1  # the broker was killed
            else:
                self.samples[group] += 1
                self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
                if not self.is_released:  # or it went on while it was asked for
                    self._judge(group, job_id, view.state, "a client")
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def ask_command(self) -> None:
        """Until it is cancelled."""
        while True:
            group, job_id = self._some_job()
            code, out, error = await self._command("job", "show", "--json", job_id)
            if code == 0:
                self.commands += 1
                if not self.is_released:
                    state = json.loads(out)["job"]["state"]
                    self._judge(group, job_id, state, "the command line")
            elif "broker" in error:
                self.unanswered += 1
            else:
                await self._not_shown(job_id, f"{group}: job show ended with {code}: {error}")
            await asyncio.sleep(_COMMAND_SECONDS)

    async def _command(self, *words: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *self._installation.command(*words),
            env=self._installation.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, error = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, out.decode(), error.decode()


class Sizes:
    """Memory and disk over time.

    Attributes:
        series: seconds since the start, bytes of the log, resident bytes by process, and what the
            garbage collection of the broker leaves it.
    """

    def __init__(self, installation: Installation, bus: NatsBus) -> None:
        self._installation, self._bus = installation, bus
        self.log_bytes = self.disk_bytes = 0
        self.first = 0
        self.peaks: Counter[str] = Counter()
        self.series: list[dict[str, float]] = []

    async def run(self) -> None:
        """Until it is cancelled."""
        began, noted = time.monotonic(), float("-inf")
        while True:
            try:
                extent = await self._bus.extent(self._bus.subjects.events_stream)
            except BusError:
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            self.log_bytes = max(self.log_bytes, extent.bytes)
            self.first = extent.first
            self.disk_bytes = max(self.disk_bytes, self._installation.disk_bytes())
            memory = {kind: self._installation.rss(kind) for kind in ("broker", "orchestrator")}
            memory["broker_heap"] = await asyncio.to_thread(self._installation.heap_bytes)
            for kind, size in memory.items():
                self.peaks[kind] = max(self.peaks[kind], size)
            if time.monotonic() - noted >= _SERIES_SECONDS:
                noted = time.monotonic()
                mebibytes = {f"{kind}_mib": round(size / 2**20, 1) for kind, size in memory.items()}
                log = {"log_mb": round(extent.bytes / 1e6, 2)}
                self.series.append({"seconds": round(noted - began), **log, **mebibytes})
            await asyncio.sleep(_LOOK_SECONDS)


def ends(histories: dict[str, list[Entry]], job_ids: Sequence[str]) -> Counter[int]:
    """How many of the jobs have so many ends."""
    return Counter(
        sum(isinstance(event, ENDS) for _, event in histories.get(job_id, ())) for job_id in job_ids
    )
