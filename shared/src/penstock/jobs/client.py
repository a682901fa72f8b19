"""Dispatching jobs and asking for them, over any bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock import telemetry
from penstock.bus.protocol import (
    Bus,
    BusError,
    BusUnavailable,
    Expect,
    Outgoing,
    WrongSequence,
    broker_time,
)
from penstock.config import Settings
from penstock.config.topology import Priority
from penstock.events.envelope import encode, utc_now
from penstock.events.job import JobCancelled, JobDispatched, JobEvent
from penstock.events.subjects import Subjects, check_name
from penstock.jobs import event_log, lifecycle, registry
from penstock.jobs.dead_letters.client import DeadLetters
from penstock.jobs.dead_letters.requeue import Ended, Reviver
from penstock.jobs.dispatch.job_factory import Maker, Terms, due_at, expiry, maker
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.dispatch.uniqueness import UniqueSender, token, wanted
from penstock.jobs.errors import AlreadyDispatched, JobRefused, NotFound
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.middleware import Unique
from penstock.jobs.outbox.offline import SenderWhenAway
from penstock.jobs.queues.pauses import Pausing
from penstock.jobs.registry import Call
from penstock.runtime.local_broker import reachable
from penstock.runtime.waiting import within

if TYPE_CHECKING:
    from penstock.jobs.batches.client import Batches
    from penstock.jobs.schedules.client import Schedules
    from penstock.jobs.workflows.client import Graphs

_CHUNK = 500
_LANES = 2
_TRANSITION_TRIES = 20
_FIRST_LOOK_SECONDS, _LOOK_SECONDS = 0.02, 2.0
"""A waiting client looks for itself too: at first soon after it heard of an event, since that is
heard before it is stored (an atomic batch some milliseconds), then seldom: a signal can be lost."""
_LETTER_SECONDS = 2.0


class Client:
    """Dispatches and queries jobs.

    Args:
        bus: a connected bus; :meth:`connect` makes one.
        max_payload_bytes: larger encoded calls are refused.
        source: what its events say about where they come from.
        maker / when_away: what the settings say about dispatching; :meth:`connect` makes them.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        prefix: str = "penstock",
        max_payload_bytes: int = 512_000,
        source: str = "client",
        maker: Maker | None = None,
        when_away: SenderWhenAway | None = None,
    ) -> None:
        self._bus = bus
        self._subjects = Subjects(prefix)
        self._max_payload_bytes = max_payload_bytes
        self._source = source
        self._maker = maker or Maker(source, max_payload_bytes)
        self._sender = Sender(bus, self._subjects)
        self._unique = UniqueSender(bus, self._subjects, self._sender)
        self._when_away = when_away
        self._reviver = Reviver(bus, self._subjects, self._source, max_payload_bytes)
        self.pausing = Pausing(bus, self._subjects, source)
        self.dead = DeadLetters(bus, self._subjects, self._source, max_payload_bytes)

    @staticmethod
    @asynccontextmanager
    async def connect(settings: Settings) -> AsyncIterator[Client]:
        """A client over NATS, closed at the end.

        Where ``nats.url`` is empty, the broker is that of the `penstock up` which runs in this
        working directory, as for the commands.

        Example::

            async with Client.connect(load()) as client:
                await client.dispatch(rebuild(table="orders"))

        Raises:
            NoBrokerKnown: neither is there (in outbox mode the client waits for one instead).
            BusUnavailable: no broker within ``nats.connect_timeout_seconds``.
        """
        from penstock.bus.late import late_bus  # noqa: PLC0415
        from penstock.bus.nats import connect  # noqa: PLC0415 - the bus is the caller's choice

        said, name = settings.dispatch, "penstock-client"
        late = said.when_away == "outbox"
        if late:
            bus = await late_bus(settings, name, reachable)
        else:
            bus = await connect(reachable(settings), name)
        when_away = SenderWhenAway(Sender(bus, Subjects(settings.prefix)), said)
        try:
            await when_away.open()
            try:
                yield Client.over(bus, settings, when_away=when_away)
            finally:
                await when_away.close()
        finally:
            await bus.close()

    @staticmethod
    def over(
        bus: Bus,
        settings: Settings,
        source: str = "client",
        when_away: SenderWhenAway | None = None,
    ) -> Client:
        """A client of a bus that somebody else closes, as the settings say."""
        return Client(
            bus,
            prefix=settings.prefix,
            max_payload_bytes=settings.jobs.max_payload_bytes,
            source=source,
            maker=maker(settings, source, in_process=getattr(bus, "in_process", False)),
            when_away=when_away,
        )

    @property
    def source(self) -> str:
        """What its events say about where they come from."""
        return self._source

    @property
    def batches(self) -> Batches:
        """Jobs that are counted together."""
        from penstock.jobs.batches.client import Batches  # noqa: PLC0415 - it needs this module

        return Batches(self, self._bus, self._subjects)

    @property
    def graphs(self) -> Graphs:
        """Chains, and jobs that wait for each other."""
        from penstock.jobs.workflows.client import Graphs  # noqa: PLC0415 - it needs this module

        return Graphs(self, self._bus, self._subjects)

    @property
    def schedules(self) -> Schedules:
        """Jobs that are dispatched again and again."""
        from penstock.jobs.schedules.client import Schedules  # noqa: PLC0415 - few need it

        return Schedules(self._bus, self._subjects, self._maker, self._sender)

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
        """Hands a job over; returns its id once the broker (or the outbox) keeps it.

        Args:
            queue: instead of the function's own. delay: seconds from now. at: not before this time.
            expires: seconds from now, or a time: a job not started by then ends as expired.
            tags: besides the function's. job_id: a caller's own id makes the dispatch idempotent.
            unique_for: refused while a job of the same function and arguments (or of the same key,
                if the function has a :class:`Unique`) was dispatched less than these seconds ago.
            priority: for queues that have priorities.

        Raises:
            PayloadTooLarge, BadName, BadTime, JobRefused: refused before anything is sent.
            AlreadyDispatched: a job of this id, or one that counts for its key, exists; names it.
            BusUnavailable: the broker did not answer; the job may or may not have been taken.
            StreamFull: the event log is full of jobs that have not ended; it was not taken.
        """
        due = due_at(delay, at, now := broker_time(self._bus))
        terms = Terms(
            queue=queue,
            due_at=due,
            expires_at=expiry(expires, due, now),
            tags=registry.check_tags(tags),
            job_id=check_name("job", job_id) if job_id else "",
            priority=priority,
        )
        event = self._maker.event(call, terms)
        if unique := wanted(call, unique_for):
            await self._send_unique(event, call, unique)
        elif self._when_away is not None:
            await self._when_away.send(event)
        else:
            await self._sender.send(event)
        return event.job_id

    async def _send_unique(self, event: JobDispatched, call: Call, unique: Unique) -> None:
        key = token(call, unique)
        if self._when_away is None:
            return await self._unique.send(event, key, unique)
        return await self._when_away.wait(lambda: self._unique.send(event, key, unique))

    async def dispatch_many(
        self, calls: Sequence[Call], *, queue: str = "", priority: Priority = "normal"
    ) -> list[str]:
        """Hands many jobs over, pipelined; returns their ids in order.

        Of jobs that are unique each is dispatched by itself; where another one counts, its id
        stands in the place.

        Raises:
            BusError: at a job that was not taken; others were. With the broker away each waits,
                or goes to the outbox, as one that is dispatched alone does.
        """
        ids: list[str] = [""] * len(calls)
        terms = Terms(queue=queue, priority=priority)
        alone = [at for at, call in enumerate(calls) if wanted(call, 0)]
        for at in alone:
            ids[at] = await self._dispatch_unique(calls[at], terms)
        usual = [at for at, each in enumerate(ids) if not each] if alone else range(len(calls))
        chunks = iter(range(0, len(usual), _CHUNK))

        async def lane() -> None:
            for start in chunks:
                places = usual[start : start + _CHUNK]
                events = [self._maker.event(calls[at], terms) for at in places]
                await self._send_all(events)
                for at, event in zip(places, events, strict=True):
                    ids[at] = event.job_id

        await asyncio.gather(*(lane() for _ in range(_LANES)))
        return ids

    async def _send_all(self, events: Sequence[JobDispatched]) -> None:
        if self._when_away is not None:
            return await self._when_away.send_many(events)
        for answer in await self._sender.send_many(events):
            if isinstance(answer, BusError):
                raise answer
        return None

    async def _dispatch_unique(self, call: Call, terms: Terms) -> str:
        event, unique = self._maker.event(call, terms), wanted(call, 0)
        assert unique is not None
        try:
            await self._send_unique(event, call, unique)
        except AlreadyDispatched as refused:
            return refused.job_id
        return event.job_id

    async def hand_over(
        self, events: Sequence[JobDispatched], *, into_reserve: bool = False
    ) -> list[int | BusError]:
        """Dispatches prepared jobs; see :meth:`penstock.jobs.dispatch.sender.Sender.send_many`."""
        return await self._sender.send_many(events, into_reserve=into_reserve)

    async def check_room(self) -> None:
        """Raises StreamFull where the event log takes no new jobs now."""
        await self._sender.check_room()

    def prepare(
        self, call: Call, job_id: str, queue: str = "", terms: Terms | None = None
    ) -> JobDispatched:
        """The event that :meth:`hand_over` dispatches. Raises as :meth:`dispatch` does."""
        named = {"queue": queue, "job_id": check_name("job", job_id)}
        return self._maker.event(call, replace(terms or Terms(), **named))

    def seals(self, call: Call) -> bool:
        """Whether the arguments of this call are encrypted."""
        return self._maker.seals(call)

    # --- asking -----------------------------------------------------------------------------------
    async def job(self, job_id: str) -> JobView:
        """A job's state, attempts, result and error. Raises NotFound."""
        check_name("job", job_id)
        events = await event_log.read(self._bus, self._subjects, job_id)
        record = lifecycle.fold(events)
        if record is None:
            raise NotFound(f"no job of id {job_id!r}; its events may have aged out")
        return JobView(record=record, events=events, ring=self._maker.ring)

    async def wait(self, job_id: str, timeout_seconds: float | None = None) -> JobView:
        """Waits until a job has ended, through broker restarts.

        Of a dead one the dead letter is stored then, too, unless that takes longer than 2 s.

        Raises:
            TimeoutError, NotFound
        """
        check_name("job", job_id)
        woken = asyncio.Event()
        listening = await self._bus.listen(self._subjects.job(job_id), lambda *_: woken.set())
        pause = _LOOK_SECONDS
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    woken.clear()
                    with suppress(BusUnavailable):
                        view = await self.job(job_id)
                        if view.state.ended:
                            break
                    heard = await within(pause, woken.wait())
                    pause = _FIRST_LOOK_SECONDS if heard else min(2 * pause, _LOOK_SECONDS)
        finally:
            await listening.unsubscribe()
        if view.state is State.DEAD:
            await within(_LETTER_SECONDS, self._letter_of(view.record))
        return view

    async def _letter_of(self, record: JobRecord) -> None:
        """Returns when the letter of a death of just now is stored: it follows the event."""
        subject = self._subjects.dead(record.queue, record.id)
        died = record.finished_at or record.dispatched_at
        while (utc_now() - died).total_seconds() < _LETTER_SECONDS:
            with suppress(BusUnavailable):
                if await self._bus.last(self._subjects.dead_stream, subject):
                    return
            await asyncio.sleep(_FIRST_LOOK_SECONDS)

    # --- changing ---------------------------------------------------------------------------------
    async def cancel(self, job_id: str, reason: str = "cancelled by a client") -> JobView:
        """Cancels a job that has not ended; a running one is told at once.

        Returns:
            The job as it is then: a job that ended first keeps its end.
        """
        for _ in range(_TRANSITION_TRIES):
            view = await self.job(job_id)
            if view.state.ended:
                return view
            event = JobCancelled(
                job_id=job_id, correlation_id=job_id, source=self._source, reason=reason
            )
            if await self._transition(event, view.record.sequence):
                await self._bus.signal(self._subjects.cancel_notice(job_id))
                return await self.job(job_id)
        raise JobRefused(f"job {job_id} changes too quickly to be cancelled; try again")

    async def retry(self, job_id: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Lets a dead or cancelled job go again: a new life of the same job.

        Args:
            arguments: some that are replaced.

        Raises:
            JobRefused: the job is neither dead nor cancelled; BadArguments: they do not fit it.
            NotFound: neither its events nor a dead letter are left.
        """
        try:
            record = (await self.job(job_id)).record
        except NotFound:  # dead letters are kept longer than events
            await self.dead.retry(job_id, arguments)
            return
        if record.state not in (State.DEAD, State.CANCELLED):
            raise JobRefused(
                f"job {job_id} is {record.state}; only dead or cancelled jobs are retried"
            )
        subject = self._subjects.dead(record.queue, job_id)
        letter = await self._bus.last(self._subjects.dead_stream, subject)
        ended = Ended(
            job_id=job_id,
            payload=record.payload,
            sequence=record.sequence,
            letter=letter.sequence if letter else 0,
            commits=record.commits,
        )
        [refusal] = await self._reviver.jobs([ended], arguments)
        if refusal:
            raise refusal

    async def pause_queue(self, queue: str, reason: str = "") -> None:
        """From now on nobody is given a job of this queue; those that run go on."""
        for lane in self._maker.lanes_of(queue):
            await self.pausing.pause(lane, reason)

    async def resume_queue(self, queue: str) -> None:
        """Gives the jobs of a paused queue out again."""
        for lane in self._maker.lanes_of(queue):
            await self.pausing.resume(lane)

    async def _transition(self, event: JobEvent, sequence: int) -> bool:
        message = Outgoing(
            self._subjects.event(event),
            encode(event),
            telemetry.inject(),
            Expect(sequence, self._subjects.job(event.job_id)),
        )
        try:
            await self._bus.append(message)
        except WrongSequence:
            return False
        return True
