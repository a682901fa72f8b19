"""Dispatching, reading, cancelling and retrying jobs, over any bus."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from msgspec.structs import replace

from penstock.bus.protocol import Bus, broker_time
from penstock.config import Settings
from penstock.config.topology import Priority
from penstock.events.job import JobCancelled
from penstock.events.subjects import Subjects, check_name
from penstock.jobs import derived_ids, job_view, registry
from penstock.jobs.batches.client import Batches
from penstock.jobs.bulk.client import Bulk
from penstock.jobs.dead_letters.client import DeadLetters
from penstock.jobs.dead_letters.requeue import Requeuer
from penstock.jobs.dispatch.dispatcher import Dispatcher
from penstock.jobs.dispatch.job_factory import JobFactory, Terms, due_at, expiry
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.errors import NotFound
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import Call, NamedJob
from penstock.jobs.job_view import JobView
from penstock.jobs.outbox.offline import OfflineSender
from penstock.jobs.queues.pauses import QueuePauses
from penstock.jobs.reading import job_end
from penstock.jobs.reading.client import Jobs
from penstock.jobs.reading.handed_on import HandedOnReader
from penstock.jobs.schedules.client import Schedules
from penstock.jobs.tagging import JobTags
from penstock.jobs.workflows.client import Graphs
from penstock.jobs.workflows.definitions import Definitions
from penstock.jobs.workflows.instances import DEFAULT_CLEANUP_SECONDS, Workflows
from penstock.jobs.workflows.recovery import StuckWorkflows
from penstock.runtime.local_broker import awaited, reachable
from penstock.telemetry import propagation


class Options(TypedDict, total=False):
    """What :meth:`Client.dispatch` takes beside the call and its queue."""

    delay: float | timedelta
    at: datetime | None
    expires: float | timedelta | datetime | None
    tags: Iterable[str]
    job_id: str
    unique_for: float | timedelta
    priority: Priority


class Client:
    """Dispatches jobs and reads how they are.

    Args:
        bus: a connected bus; :meth:`connect` makes one.
        prefix: what the names of streams and subjects begin with.
        max_payload_bytes: larger encoded calls are refused.
        source: what its events name as their origin.
        factory: makes the first events of jobs, as the settings ask for; :meth:`connect` and
            :meth:`over` make one.
        offline: sends while the broker is away; :meth:`connect` makes one.
        cleanup_seconds: how long a workflow that it cancels may clean up.

    Attributes:
        batches: jobs that are counted together.
        graphs: chains, and jobs that wait for each other.
        workflows: coded workflows that were dispatched.
        stuck_workflows: coded workflows and graphs that should go on and do not.
        definitions: declared workflows, stored under a name; their instances are graphs.
        schedules: jobs that are dispatched again and again.
        dead: jobs that will not run again by themselves.
        jobs: lists of jobs, and what they wrote.
        tags: what jobs are tagged with after their dispatch.
        pauses: queues that are paused.
        bulk: operations on many jobs.
        dispatcher: what all of them send by.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        prefix: str = "penstock",
        max_payload_bytes: int = 512_000,
        source: str = "client",
        factory: JobFactory | None = None,
        offline: OfflineSender | None = None,
        cleanup_seconds: float = DEFAULT_CLEANUP_SECONDS,
    ) -> None:
        self._bus = bus
        self._subjects = subjects = Subjects(prefix)
        self._log = JobLog(bus, subjects, source)
        self._handed_on = HandedOnReader(bus, subjects)
        factory = factory or JobFactory(source, max_payload_bytes)
        self.dispatcher = Dispatcher(bus, subjects, factory, offline)
        self._requeuer = Requeuer(bus, subjects, source, max_payload_bytes)
        self.dead = DeadLetters(bus, subjects, source, self._requeuer)
        self.batches = Batches(bus, subjects, self.dispatcher, self.retry)
        self.graphs = Graphs(bus, subjects, self.dispatcher)
        self.definitions = Definitions(bus, subjects, self.dispatcher)
        self.workflows = Workflows(
            bus,
            subjects,
            self._log,
            self.job,
            self.cancel,
            self.batches,
            factory.ring,
            cleanup_seconds,
        )
        self.stuck_workflows = StuckWorkflows(
            bus, subjects, self._log, self.workflows, self.graphs, self.batches
        )
        self.schedules = Schedules(bus, subjects, self.dispatcher)
        self.jobs = Jobs(bus, subjects, self._log, factory.ring, self._handed_on)
        self.tags = JobTags(self._log)
        self.pauses = QueuePauses(bus, subjects, source)
        self.bulk = Bulk(bus, subjects, factory)

    @staticmethod
    @asynccontextmanager
    async def connect(settings: Settings) -> AsyncIterator[Client]:
        """A client over NATS, closed at the end.

        Where ``nats.url`` is empty, the broker is that of the `penstock up` which runs in this
        working directory, as for the commands; while it starts, the client waits for it.

        Example::

            async with Client.connect(load()) as client:
                await client.dispatch(rebuild(table="orders"))

        Raises:
            NoBrokerKnown: neither is there, and none starts within a few seconds (in outbox mode
                the client waits for one instead).
            BusUnavailable: no broker within ``nats.connect_timeout_seconds``.
        """
        # only here, so that a client over another bus does without the NATS library
        from penstock.bus.late import late_bus  # noqa: PLC0415
        from penstock.bus.nats import connect  # noqa: PLC0415

        propagation.use(settings.telemetry.propagators, for_libraries=False)
        name = "penstock-client"
        if settings.dispatch.when_away == "outbox":
            bus = await late_bus(settings, name, reachable)
        else:
            bus = await connect(await awaited(settings), name)
        sender = Sender(bus, Subjects(settings.prefix))
        offline = OfflineSender(sender, settings.dispatch)
        try:
            await offline.open()
            try:
                yield Client.over(bus, settings, offline=offline)
            finally:
                await offline.close()
        finally:
            await bus.close()

    @staticmethod
    def over(
        bus: Bus,
        settings: Settings,
        source: str = "client",
        offline: OfflineSender | None = None,
    ) -> Client:
        """A client of a bus that its caller closes.

        Args:
            bus: a connected bus.
            settings: of this installation.
            source: what its events name as their origin.
            offline: sends while the broker is away.
        """
        in_process = getattr(bus, "in_process", False)
        return Client(
            bus,
            prefix=settings.prefix,
            max_payload_bytes=settings.jobs.max_payload_bytes,
            source=source,
            factory=JobFactory.from_settings(settings, source, in_process=in_process),
            offline=offline,
            cleanup_seconds=settings.workflows.cleanup_seconds,
        )

    # --- dispatching ------------------------------------------------------------------------------
    async def dispatch(
        self,
        call: Call,
        *,
        queue: str = "",
        delay: float | timedelta = 0.0,
        at: datetime | None = None,
        expires: float | timedelta | datetime | None = None,
        tags: Iterable[str] = (),
        job_id: str = "",
        unique_for: float | timedelta = 0.0,
        priority: Priority = "normal",
    ) -> str:
        """Dispatches a job; returns its id once the broker (or the outbox) holds it.

        Args:
            call: what runs.
            queue: instead of the function's own.
            delay: seconds from now.
            at: not before this time.
            expires: seconds from now, or a time: a job not started by then ends as expired.
            tags: besides the function's.
            job_id: a caller's own id makes the dispatch idempotent.
            unique_for: refused while a job of the same function and arguments (or of the same key,
                if the function has a :class:`Unique`) was dispatched less than these seconds ago.
            priority: for queues that have priorities.

        Raises:
            PayloadTooLarge, BadName, BadTime, JobRefused: refused before anything is sent.
            AlreadyDispatched: a job of this id, or one that counts for its key, exists; names it.
            BusUnavailable: the broker did not answer; whether it stored the job is not known.
            StreamFull: the event log is full of jobs that have not ended; it was not stored.
        """
        terms = self._terms(queue, delay, at, expires, tags, priority)
        if job_id:
            is_workflow = isinstance(call, Call) and call.job.kind == "workflow"
            checked = (
                derived_ids.check_workflow_job_id(job_id)
                if is_workflow
                else derived_ids.check_job_id("dispatched job", job_id)
            )
            terms = replace(terms, job_id=checked)
        return await self.dispatcher.dispatch(call, terms, unique_for)

    async def dispatch_named(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        queue: str,
        **options: Unpack[Options],
    ) -> str:
        """Dispatches a job whose code this program lacks; the worker checks the arguments.

        For batches, schedules, graphs and encrypted jobs see :class:`NamedJob`, which makes calls.

        Args:
            name: as its function is registered, such as ``shop.jobs.send_mail``.
            arguments: plain values by the names of the function's parameters.
            queue: where it waits; the function's own is not known here.
            options: as of :meth:`dispatch`.

        Raises:
            BadArguments: one cannot be encoded; and all that :meth:`dispatch` raises.

        Example::

            await client.dispatch_named("shop.jobs.send_mail", {"to": "ann"}, queue="mails")
        """
        call = NamedJob(name, queue=queue)(**(arguments or {}))
        return await self.dispatch(call, **options)

    async def dispatch_many(
        self,
        calls: Sequence[Call],
        *,
        queue: str = "",
        delay: float | timedelta = 0.0,
        at: datetime | None = None,
        expires: float | timedelta | datetime | None = None,
        tags: Iterable[str] = (),
        priority: Priority = "normal",
    ) -> list[str]:
        """Dispatches many jobs, pipelined; returns their ids in order.

        Unique jobs are dispatched one by one; where another job counts, its id is returned. For a
        ``job_id`` or ``unique_for`` of its own dispatch each by :meth:`dispatch`.

        Args:
            calls: what runs.
            queue: instead of the functions' own.
            delay: seconds from now, for each of them.
            at: not before this time.
            expires: seconds from now, or a time: jobs not started by then end as expired.
            tags: besides the functions'.
            priority: for queues that have priorities.

        Raises:
            PayloadTooLarge, BadName, BadTime, JobRefused: at a job that was refused; others were
                sent.
            BusError: at a job that was not accepted; others were. While the broker is away each
                waits, or goes to the outbox, as one that is dispatched alone does.
        """
        return await self.dispatcher.dispatch_many(
            calls, self._terms(queue, delay, at, expires, tags, priority)
        )

    def _terms(
        self,
        queue: str,
        delay: float | timedelta,
        at: datetime | None,
        expires: float | timedelta | datetime | None,
        tags: Iterable[str],
        priority: Priority,
    ) -> Terms:
        due = due_at(delay, at, now := broker_time(self._bus))
        return Terms(
            queue=queue,
            due_at=due,
            expires_at=expiry(expires, due, now),
            tags=registry.check_tags(tags),
            priority=priority,
        )

    # --- reading ----------------------------------------------------------------------------------
    async def job(self, job_id: str) -> JobView:
        """A job's state, attempts, result and error. Raises NotFound."""
        ring = self.dispatcher.factory.ring
        return await job_view.read(self._log, job_id, ring, self._handed_on)

    async def wait(self, job_id: str, timeout_seconds: float | None = None) -> JobView:
        """Waits until a job has ended, through broker restarts.

        The dead letter of a dead job is stored then, too, unless that takes longer than 2 s.

        Raises:
            TimeoutError: says how the job is, and why it has not started where a worker refused it.
            NotFound
        """
        check_name("job", job_id)
        ring = self.dispatcher.factory.ring
        return await job_end.wait(
            self._bus,
            self._subjects,
            job_id,
            timeout_seconds,
            read=lambda: job_view.read(self._log, job_id, ring),
            read_all=lambda: self.job(job_id),
        )

    # --- changing ---------------------------------------------------------------------------------
    async def cancel(self, job_id: str, reason: str = "cancelled by a client") -> JobView:
        """Cancels a job that has not ended; the worker of a running one is notified at once.

        Returns:
            The job as it is then: a job that ended first keeps its end.

        Raises:
            NotFound, BusError
            JobRefused: the job changes too quickly.
        """

        async def change(view: JobView) -> JobView | None:
            if view.state.ended:
                return view
            event = JobCancelled(
                job_id=job_id,
                correlation_id=job_id,
                source=self._log.source,
                reason=reason,
                function=view.record.function,
            )
            if not await self._log.append_if(view.record, event):
                return None
            await self._bus.signal(self._subjects.cancel_notice(job_id))
            return await self.job(job_id)

        return await compare_and_set(lambda: self.job(job_id), change, f"job {job_id}")

    async def retry(self, job_id: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Requeues a dead or cancelled job: a new life of the same job.

        Args:
            job_id: of the job.
            arguments: some that are replaced.

        Raises:
            JobRefused: the job is neither dead nor cancelled; BadArguments: they do not fit it.
            NotFound: neither its events nor a dead letter are left.
        """
        try:
            await self._requeuer.requeue(job_id, arguments)
        except NotFound:  # dead letters are kept longer than events
            await self.dead.retry(job_id, arguments)

    async def pause_queue(
        self, queue: str, reason: str = "", until: datetime | None = None
    ) -> None:
        """From now on no worker is given a job of this queue; running jobs go on.

        Args:
            queue: its name.
            reason: shown with the pause.
            until: when it ends by itself, within 30 days; None: when the queue is resumed. A
                second pause replaces the first.

        Raises:
            BadTime: ``until`` is over, too far away, or has no time zone.
        """
        for name in self.dispatcher.factory.priority_queues(queue):
            await self.pauses.pause(name, reason, until)

    async def resume_queue(self, queue: str) -> None:
        """Workers are given the jobs of a paused queue again."""
        for name in self.dispatcher.factory.priority_queues(queue):
            await self.pauses.resume(name)
