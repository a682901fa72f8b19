"""Jobs in every state that a job can live in, while the event log turns over."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

from tests.turnover.turnover_jobs import (
    HELD,
    LATER,
    PAUSED,
    hold,
    mend,
    note,
    take,
    take_when_resumed,
)
from tests.waiting import eventually

from penstock.bus.protocol import BusError
from penstock.jobs import Call, Client, Step, awaiting
from penstock.jobs.batches.open_batch import OpenBatch
from penstock.jobs.derived_ids import step_id
from penstock.jobs.errors import NotFound
from penstock.jobs.lifecycle import State

_SHARES = {"waiting": 0.25, "delayed": 0.25, "paused": 0.20, "retrying": 0.08}
"""Of all; the rest is in batches, graphs and chains, and runs."""
_BATCHES, _MEMBERS_DONE, _MEMBERS_SHARE = 5, 20, 0.02
_SCHEDULES, _CRON = 10, "*/20 * * * * *"
_SETTLED_SECONDS = 300.0
_SPREAD_SECONDS = 20.0
_CHUNK = 50

_NOT_STARTED = frozenset({State.WAITING})
EXPECTED: dict[str, frozenset[State]] = {
    "waiting": _NOT_STARTED,
    "delayed": frozenset({State.SCHEDULED}),
    "paused": _NOT_STARTED,
    "retrying": frozenset({State.RETRYING}),
    "running": frozenset({State.RUNNING, State.WAITING, State.RETRYING}),  # it may be taken over
    "in open batches": _NOT_STARTED,
    "in graphs": _NOT_STARTED,
    "in chains": _NOT_STARTED,
}
"""The states in which a job may be shown before it is released, by its group."""


class Living:
    """What is dispatched before the log turns over, and released after it.

    Args:
        diary: a file that the jobs write into.
        jobs: how many live. running: how many of these run all the while.
        until: when they are released, by the machine's monotonic clock.

    Attributes:
        groups: ids of living jobs, by the state that they live in.
        ended: ids of jobs of the same batches and graphs that end at once.
        batches: how many jobs each has. graphs, schedules: ids and names.
    """

    def __init__(
        self, client: Client, diary: str, jobs: int, running: int, until: float, seed: int
    ) -> None:
        self._client, self._diary, self._until = client, diary, until
        self._chance = random.Random(seed)
        self._open = AsyncExitStack()
        self._sizes = {name: int(jobs * share) for name, share in _SHARES.items()}
        self._sizes["running"] = running
        self._members = int(jobs * _MEMBERS_SHARE)
        self._sizes["graphs"] = jobs - sum(self._sizes.values()) - _BATCHES * self._members
        self.groups: dict[str, list[str]] = {name: [] for name in EXPECTED}
        self.ended: list[str] = []
        self.batches: dict[str, int] = {}
        self.graphs: list[str] = []
        self.schedules: list[str] = []

    @property
    def ids(self) -> list[str]:
        return [job_id for group in self.groups.values() for job_id in group]

    async def dispatch(self) -> None:
        """Returns when each job is in the state of its group."""
        await self._client.pause_queue(PAUSED)
        await self._many("waiting", queue=LATER)
        await self._many("paused", queue=PAUSED)
        for _ in range(self._sizes["running"]):
            await self._one("running", hold(diary=self._diary, until=self._until), queue=HELD)
        for _ in range(self._sizes["retrying"]):
            await self._one("retrying", mend(diary=self._diary, until=self._moment()))
        await self._dispatch_batches()
        await self._dispatch_graphs()
        for _ in range(self._sizes["delayed"]):
            delay = self._moment() - time.monotonic()
            await self._one("delayed", note(diary=self._diary), delay=delay)
        for number in range(_SCHEDULES):
            self.schedules.append(f"schedule-{number}")
            await self._client.schedules.add(self.schedules[-1], note(diary=self._diary), _CRON)
        unsettled = {
            job_id: group
            for group in ("retrying", "running", "in graphs", "in chains")
            for job_id in self.groups[group]
        }

        async def is_settled() -> bool:
            for job_id, group in list(unsettled.items()):
                if await self._is_in_state(job_id, group):
                    del unsettled[job_id]
            return not unsettled

        await eventually(is_settled, _SETTLED_SECONDS, "all jobs in their states")

    def _moment(self) -> float:
        return self._until + self._chance.uniform(0, _SPREAD_SECONDS)

    async def _one(self, group: str, call: Call, **terms: Any) -> None:
        self.groups[group].append(await self._client.dispatch(call, **terms))

    async def _many(self, group: str, queue: str) -> None:
        for chunk in _chunks([note(diary=self._diary) for _ in range(self._sizes[group])]):
            self.groups[group] += await self._client.dispatch_many(chunk, queue=queue)

    async def _dispatch_batches(self) -> None:
        for number in range(_BATCHES):
            batch: OpenBatch = await self._open.enter_async_context(
                self._client.batches.open(batch_id=f"batch-{number}", then=note(diary=self._diary))
            )
            self.ended += await batch.add([note(diary=self._diary) for _ in range(_MEMBERS_DONE)])
            calls = [note(diary=self._diary) for _ in range(self._members)]
            self.groups["in open batches"] += await batch.add(calls, queue=PAUSED)
            self.batches[batch.id] = _MEMBERS_DONE + self._members

    async def _dispatch_graphs(self) -> None:
        """Of three steps: the first ends at once, the second lives, the last takes a result."""
        graphs = self._client.graphs
        for number in range(self._sizes["graphs"]):
            first = note(diary=self._diary)
            second = awaiting(take_when_resumed, "earlier", diary=self._diary)
            last = awaiting(take, "earlier", diary=self._diary)
            if number % 2:
                graph = await graphs.chain([first, second, last])
            else:
                steps = {
                    "a": Step(first),
                    "b": Step(second, after=("a",)),
                    "c": Step(last, after=("b",), takes={"earlier": "a"}),
                }
                graph = await graphs.dispatch(steps)
            self.graphs.append(graph)
            self.groups["in chains" if number % 2 else "in graphs"].append(step_id(graph, 1))
            self.ended.append(step_id(graph, 0))

    async def _is_in_state(self, job_id: str, group: str) -> bool:
        try:
            state = (await self._client.job(job_id)).state
        except (NotFound, BusError):
            return False
        return state in EXPECTED[group] and (group != "running" or state is State.RUNNING)

    async def release(self) -> None:
        """Closes batches and ends schedules; the jobs' own moments come by themselves."""
        for name in self.schedules:
            await self._client.schedules.pause(name)
        await self._open.aclose()
        await self._client.resume_queue(PAUSED)


def _chunks(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    for start in range(0, len(calls), _CHUNK):
        yield calls[start : start + _CHUNK]
