"""One seeded run of the proof: an installation, what lives in it, kills, and the verdict."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tests.chaos.chaos_jobs import runs
from tests.histories import broken, miscounted, unended, unwitnessed, verified
from tests.turnover.installation import Installation
from tests.turnover.living import Living
from tests.turnover.recorder import Recorder, Shown, Sizes, ends
from tests.turnover.traffic import Traffic
from tests.turnover.turnover_jobs import LATER
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import BusError
from penstock.bus.streams import events_reserve
from penstock.jobs import Client
from penstock.jobs.derived_ids import callback_id
from penstock.jobs.errors import NotFound

_KINDS = ("orchestrator", "broker", "orchestrator", "executor", "worker", "metrics", "decider")
_START_SECONDS, _SETTLED_SECONDS, _PATIENCE_SECONDS = 180.0, 240.0, 120.0
_SETUP_SECONDS = 30.0
_KILLS_AFTER_RELEASE_SECONDS = 30.0
_LATER_WORKERS = 2
_OTHER_WORKERS = 4
_AGAIN_SECONDS = 0.5
_MOST_SHOWN = 20


def progress(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


class Proof:
    """Args: options: see ``--help``."""

    def __init__(self, installation: Installation, options: argparse.Namespace) -> None:
        self._installation, self._options = installation, options
        self._settings = installation.settings
        self._limit = self._settings.streams.events_max_bytes
        self._chance = random.Random(options.seed)
        self._diary = installation.folder / "diary"
        self._tasks: list[asyncio.Task[None]] = []
        self._waited = self._gone = 0

    async def run(self) -> dict[str, Any]:
        """The figures; ``wrong`` among them is empty where all is well."""
        # brokers that just started take no stream before they have joined
        self._bus = await _patiently(lambda: connect(self._settings, "recorder"))
        other = await connect(self._settings, "client")
        self._client = Client.over(other, self._settings)
        self._traffic = Traffic(self._bus, self._client, self._options.traffic_mb * 1e6 / 60)
        self._recorder = Recorder(self._bus, self._traffic)
        self._sizes = Sizes(self._installation, other)
        try:
            return await self._run()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._installation.end()
            for bus in (self._bus, other):
                with suppress(BusError):
                    await bus.close()

    async def _run(self) -> dict[str, Any]:
        options, installation = self._options, self._installation
        self._spawn(installation.supervise(), self._recorder.run(), self._sizes.run())
        workers = _OTHER_WORKERS + options.running
        await eventually(
            lambda: len(installation.workers()) >= workers, _START_SECONDS, f"{workers} workers"
        )
        progress(f"{workers} workers run; dispatching {options.jobs} jobs that live")
        until = time.monotonic() + _SETUP_SECONDS + options.minutes * 60
        living = Living(
            self._client, str(self._diary), options.jobs, options.running, until, options.seed
        )
        self._living = living
        await living.dispatch()
        progress("all are in their states; traffic and kills begin")
        self._shown = Shown(self._client, living, installation, self._recorder, options.seed)
        began = time.monotonic()
        traffic = self._spawn(self._traffic.histories(), self._traffic.runs())
        asking = self._spawn(self._shown.ask_client(), self._shown.ask_command())
        await self._kill(until)
        seconds = time.monotonic() - began
        progress(f"{self._traffic.bytes / 1e6:.0f} MB in {seconds:.0f} s; releasing")
        self._shown.is_released = True
        installation.serve(LATER, _LATER_WORKERS)
        await _patiently(living.release)
        await self._kill(time.monotonic() + _KILLS_AFTER_RELEASE_SECONDS)
        for task in traffic:
            task.cancel()
        hung = await self._settled()
        for task in asking:
            task.cancel()
        return {**await self._figures(seconds), "wrong": [*hung, *await self._wrong()]}

    def _spawn(self, *works: Any) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(work) for work in works]
        self._tasks += tasks
        return tasks

    async def _kill(self, until: float) -> None:
        """Kills something every few seconds; each kind comes before any comes again."""
        while True:
            for kind in self._chance.sample(_KINDS, len(_KINDS)):
                pause = self._chance.uniform(0.5, 1.5) * self._options.kill_seconds
                await asyncio.sleep(max(min(pause, until - time.monotonic()), 0))
                for task in self._tasks:
                    if task.done() and not task.cancelled():
                        task.result()  # what failed ends the run
                if time.monotonic() >= until:
                    return
                progress(
                    f"kill {kind}; {self._traffic.bytes / 1e6:.0f} MB stored, "
                    f"{sum(self._shown.samples.values())} times asked, "
                    f"{len(self._recorder.ended)} ended, {len(self._shown.wrong)} wrong"
                )
                await self._installation.kill(kind, self._chance.random(), self._bus)

    # --- the end ----------------------------------------------------------------------------------
    async def _settled(self) -> list[str]:
        """What does not come to its end, and what whoever waits for it is not answered."""
        try:
            await eventually(lambda: not self._open(), _SETTLED_SECONDS)
        except AssertionError:
            left = self._open()
            return [f"{len(left)} do not end: {', '.join(left[:_MOST_SHOWN])}"]
        progress("all have ended; waiting for each batch and graph as a client")
        unanswered = await self._waited_for()
        progress("judging")
        return unanswered

    def _open(self) -> list[str]:
        """All that must end and has not: what was dispatched, and what was recorded."""
        living, recorder = self._living, self._recorder
        callbacks = [callback_id(batch, "then") for batch in living.batches]
        must = {*living.ids, *living.ended, *callbacks, *self._traffic.jobs}
        batches = {f"batch {name}" for name in set(living.batches) - set(recorder.batches)}
        graphs = {f"graph {name}" for name in set(living.graphs) - set(recorder.graphs)}
        return sorted(({*must, *recorder.histories} - recorder.ended) | batches | graphs)

    async def _waited_for(self) -> list[str]:
        """Those that have ended and for which a client waits in vain; a history may be gone."""
        client = self._client
        waits = [
            *(partial(client.graphs.wait, graph) for graph in self._living.graphs),
            *(partial(client.batches.wait, batch) for batch in self._living.batches),
            *(partial(client.wait, group[0]) for group in self._living.groups.values() if group),
        ]
        hanging = []
        for wait in waits:
            try:
                await wait(_PATIENCE_SECONDS)
            except NotFound:
                self._gone += 1
            except TimeoutError:
                hanging.append(f"{wait.args[0]} has ended, and waiting for it does not end")
        self._waited = len(waits)
        return hanging

    async def _wrong(self) -> list[str]:
        histories, living = self._recorder.histories, self._living
        must = [*living.ids, *living.ended]
        sizes = {
            batch: (size, self._recorder.batches[batch])
            for batch, size in living.batches.items()
            if batch in self._recorder.batches
        }
        witnessed = list(runs(self._diary))
        found = [
            *broken(histories),
            *unended(histories, must),
            *unwitnessed(histories, witnessed, must),
            *miscounted(histories, sizes),
        ]
        found += await _patiently(lambda: verified(self._bus, self._bus.subjects))
        wrong = [str(breach) for breach in found]
        wrong += self._shown.wrong
        if self._recorder.missed:
            wrong.append(f"the recorder missed {self._recorder.missed} messages: no verdict")
        wrong += [
            f"graph {graph} ended with {', '.join(ends_of) or 'nothing'}"
            for graph in living.graphs
            if (ends_of := self._recorder.graphs.get(graph, [])) != ["GraphCompleted"]
        ]
        if counts := {n: jobs for n, jobs in ends(histories, must).items() if n != 1}:
            wrong.append(f"jobs by their number of ends, other than one: {counts}")
        wrong += [f"dead letter: {subject}" for subject in await _patiently(self._letters)]
        for name in living.schedules:
            if not (await self._client.schedules.get(name)).dispatched:
                wrong.append(f"{name} never ticked")
        bound = self._limit + events_reserve(self._limit)
        if self._sizes.log_bytes > bound:
            wrong.append(f"the log held {self._sizes.log_bytes:,} bytes of {bound:,}")
        return wrong[:_MOST_SHOWN]

    async def _letters(self) -> Sequence[str]:
        subjects = self._bus.subjects
        return list(await self._bus.count(subjects.dead_stream, subjects.dead("*", "*")))

    async def _figures(self, seconds: float) -> dict[str, Any]:
        sizes, traffic, shown = self._sizes, self._traffic, self._shown
        extent = await _patiently(lambda: self._bus.extent(self._bus.subjects.events_stream))
        must = {*self._living.ids, *self._living.ended}
        return {
            "log_limit_bytes": self._limit,
            "seconds_of_traffic": round(seconds),
            "traffic_mb_per_minute": round(traffic.bytes * 60e-6 / seconds, 1),
            "log_turned_over_times": round(traffic.bytes / self._limit, 1),
            "messages_that_left_the_log": extent.first - 1,
            "living_jobs": {name: len(ids) for name, ids in self._living.groups.items()},
            "ended_exactly_once": ends(self._recorder.histories, self._living.ids)[1],
            "other_jobs_that_ended": len(self._recorder.ended - must),
            "carried": self._recorder.carried,
            "kills": self._installation.kills,
            "taken_over": self._recorder.recovered,
            "asked_by_client": dict(shown.samples),
            "asked_by_command_line": shown.commands,
            "waited_for_after_the_end": self._waited,
            "of_these_history_gone": self._gone,
            "not_answered_during_kills": shown.unanswered,
            "slowest_answer_seconds": round(shown.slowest_seconds, 2),
            "log_bytes_at_most": sizes.log_bytes,
            "disk_bytes_at_most": sizes.disk_bytes,
            "memory_bytes_at_most": dict(sizes.peaks),
            "series": sizes.series,
        }


async def _patiently(act: Callable[[], Awaitable[Any]]) -> Any:
    """What the broker answers, which may be away for a while."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return await act()
        except BusError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_AGAIN_SECONDS)
