"""Finds workflows that are stuck, and has the orchestrator look at them again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from penstock.bus import bounded
from penstock.bus.protocol import Bus, broker_time
from penstock.events.subjects import Subjects
from penstock.events.workflow import (
    SignalReceived,
)
from penstock.jobs import derived_ids
from penstock.jobs.batches.batch_record import BatchRecord
from penstock.jobs.batches.client import Batches
from penstock.jobs.bulk.scan import pages
from penstock.jobs.errors import JobsError, NotFound
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.workflows.client import Graphs
from penstock.jobs.workflows.coded import consumed_signals, inbox, memo
from penstock.jobs.workflows.instances import Workflows
from penstock.jobs.workflows.stuck import StuckWorkflow, coded_defect, graph_defect

DEFAULT_SILENT = timedelta(seconds=30)
"""The orchestrator makes up for what a crash left out within 10 seconds."""
MOST_LOOKED_AT = 20_000
_AT_ONCE = 50
_LOOK_SECONDS = 0.25


class _Candidate(NamedTuple):
    """A workflow that should go on, unless its queue holds a message of it."""

    about: StuckWorkflow
    queue: str = ""
    changed_by: int = 0


class StuckWorkflows:
    """Reached as ``client.stuck_workflows``.

    Args:
        log: the events of jobs.
        batches: those that are steps.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        log: JobLog,
        workflows: Workflows,
        graphs: Graphs,
        batches: Batches,
    ) -> None:
        self._bus, self._subjects, self._log = bus, subjects, log
        self._workflows, self._graphs, self._batches = workflows, graphs, batches

    # --- finding ----------------------------------------------------------------------------------
    async def find(self, silent: timedelta = DEFAULT_SILENT) -> list[StuckWorkflow]:
        """Workflows that should have gone on so long ago, and did not; the oldest first.

        Coded ones that are suspended, and graphs. Not: paused and blocked ones, and those whose
        message waits in their queue, for lack of workers say.

        Raises:
            BusError
        """
        before = broker_time(self._bus) - silent
        waiting = await self._workflows.list(waiting_longer=silent, limit=MOST_LOOKED_AT)
        ids = [view.id for view in waiting if not view.blocked and view.paused_at is None]
        coded = [one for one in await self._all(self._coded, ids) if one.about.since < before]
        graphs = await self._all(self._graph, await self._graphs.ids())
        late_graphs = [one for one in graphs if one.about.since < before]
        stuck = [*await self._without_message(coded), *late_graphs]
        return sorted((one.about for one in stuck), key=lambda one: one.since)

    async def _all(
        self, look: Callable[[str], Awaitable[_Candidate | None]], ids: Sequence[str]
    ) -> list[_Candidate]:
        looked_at = await bounded.gather(look, ids, _AT_ONCE)
        return [one for one in looked_at if one is not None]

    async def _without_message(self, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        """Those that no message lets go on, in a queue that workers may be slow to empty."""
        queues = sorted({one.queue for one in candidates})
        made_from: dict[str, int] = {}
        if queues:
            async for page in pages(self._bus, self._subjects, queues):
                for message in page:
                    stored, queue = message.stored, self._subjects.queue(message.call.queue)
                    if stored is not None and stored.subject == queue:
                        before = made_from.get(message.job_id, 0)
                        made_from[message.job_id] = max(before, message.made_from)
        return [one for one in candidates if made_from.get(one.about.id, 0) < one.changed_by]

    async def _coded(self, workflow_id: str) -> _Candidate | None:
        record = await self._log.read(workflow_id)
        if record is None or record.workflow is None:
            return None
        steps = memo.open_steps(record.workflow).values()
        numbers = [step.n for step in steps if step.is_job]
        jobs = await bounded.gather(partial(self._step, record), numbers, _AT_ONCE)
        by_number = dict(zip(numbers, jobs, strict=True))
        over = {n for n, job in by_number.items() if job is None and await self._is_over(record, n)}
        consumed = consumed_signals.of(record.workflow)
        events = (await self._log.inbox(workflow_id, consumed)).events
        sent_at = {at: event.at for at, event in events if isinstance(event, SignalReceived)}
        unread = inbox.unread(events, consumed)
        answers = {
            n: sent_at.get(signal.sequence, record.dispatched_at)
            for n, signal in inbox.answered(steps, unread).items()
        }
        open_jobs = {n: job for n, job in by_number.items() if n not in over}
        batches = [step.n for step in steps if step.kind == "batch"]
        shown = await bounded.gather(partial(self._batch, record), batches, _AT_ONCE)
        by_batch = {n: batch for n, batch in zip(batches, shown, strict=True) if batch}
        now = broker_time(self._bus)
        defect = coded_defect(record, open_jobs, by_batch, answers, now)
        if defect is None:
            return None
        about = StuckWorkflow(
            id=workflow_id,
            kind="coded",
            function=record.function,
            since=defect.since,
            reason=defect.reason,
        )
        return _Candidate(about, record.queue, record.changed_by)

    async def _step(self, record: JobRecord, n: int) -> JobRecord | None:
        return await self._log.read(derived_ids.step_id(record.id, n))

    async def _batch(self, record: JobRecord, n: int) -> BatchRecord | None:
        try:
            return await self._batches.show(derived_ids.step_id(record.id, n))
        except NotFound:
            return None

    async def _is_over(self, record: JobRecord, n: int) -> bool:
        """Whether a step without events has ended, and its history was shortened."""
        return await self._log.is_over(derived_ids.step_id(record.id, n), record.life_from)

    async def _graph(self, graph_id: str) -> _Candidate | None:
        try:
            record = await self._graphs.show(graph_id)
        except JobsError:
            return None
        if record.state.ended or record.is_paused:
            return None
        jobs = await self._graphs.jobs(record)
        try:
            defect = graph_defect(record, jobs, broker_time(self._bus))
        except ValueError:
            return None
        if defect is None:
            return None
        about = StuckWorkflow(
            id=graph_id,
            kind="declared",
            function=record.definition or record.title,
            since=defect.since,
            reason=defect.reason,
        )
        return _Candidate(about)

    # --- mending ----------------------------------------------------------------------------------
    async def recover(
        self, stuck: Sequence[StuckWorkflow], patience_seconds: float = 15.0
    ) -> list[StuckWorkflow]:
        """Has the orchestrator read each again and make up for what it lacks; waits until it did.

        An event is stored in the history of each, so that what was made before it is void.

        Args:
            stuck: by :meth:`find`.
            patience_seconds: how long it may take.

        Returns:
            The same with what became of them.

        Raises:
            BusError
        """
        mended = await bounded.gather(self._nudge, stuck, _AT_ONCE)
        deadline = asyncio.get_running_loop().time() + patience_seconds
        waiting = [one for one in mended if not one.outcome]
        while waiting and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
            coded = await self._all(self._coded, [w.id for w in waiting if w.kind == "coded"])
            graphs = await self._all(self._graph, [w.id for w in waiting if w.kind == "declared"])
            waiting = [one.about for one in (*await self._without_message(coded), *graphs)]
        left = {one.id for one in waiting}
        return [replace(one, outcome=one.outcome or _outcome(one.id in left)) for one in mended]

    async def _nudge(self, one: StuckWorkflow) -> StuckWorkflow:
        reason = f"recovered: {one.reason}"
        try:
            if one.kind == "coded":
                await self._workflows.resume(one.id, reason, even_if_not_paused=True)
            else:
                await self._graphs.resume(one.id, reason, even_if_not_paused=True)
        except JobsError as error:
            return replace(one, outcome=f"failed: {error}")
        return one


def _outcome(is_stuck: bool) -> str:
    return "failed: is an orchestrator running? see 'penstock health'" if is_stuck else "goes on"
