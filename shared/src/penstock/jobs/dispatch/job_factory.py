"""From a call and the terms of its dispatch to the job's first event."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.config import Settings
from penstock.config.serving import Serving, serving
from penstock.config.topology import PRIORITIES, Priority, in_lane, with_lanes
from penstock.events.envelope import MalformedEvent, check_instant, new_id
from penstock.events.job import JobDispatched
from penstock.events.subjects import check_name
from penstock.jobs import derived_ids, registry
from penstock.jobs.errors import BadTime, JobRefused, PayloadTooLarge, UnknownJob
from penstock.jobs.job_type import Call, JobType, NamedJob
from penstock.jobs.payloads import encryption, payload
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.retry import Backoff

log = logging.getLogger("penstock.jobs")

_MAX_DELAY_SECONDS = 366 * 86_400.0
_MAX_SECONDS = 10 * 366 * 86_400.0
_LATER = "use a schedule for what is further away"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a dispatch sets beside the call itself.

    Attributes:
        queue: empty: the function's own.
        due_at: not started before this.
        expires_at: not started after this.
        tags: besides the function's.
        job_id: empty: a new one.
        priority: for queues that have priorities.
        template: the call is a template of jobs whose ids begin with this and a hyphen.
        sealed: encrypt the arguments although the job does not ask for it.
        takes: parameters left open, with the job whose result each is given.
        step: name of the step of a graph or workflow that the job is.
        workflow: name of that graph or workflow.
        tries: attempts allowed; 0: as the function declares.
        timeout_seconds: of an attempt; 0: as the function declares.
        workflow_timeout_seconds: of a workflow, as in :class:`Payload`.
        backoff: between attempts; None: as the function declares.
    """

    queue: str = ""
    due_at: datetime | None = None
    expires_at: datetime | None = None
    tags: tuple[str, ...] = ()
    job_id: str = ""
    priority: Priority = "normal"
    template: str = ""
    sealed: bool = False
    takes: dict[str, str] = {}
    step: str = ""
    workflow: str = ""
    tries: int = 0
    timeout_seconds: float = payload.UNLIMITED
    workflow_timeout_seconds: float = payload.UNLIMITED
    backoff: Backoff | None = None


class JobFactory:
    """Makes the first events of jobs.

    Args:
        source: what the events name as their origin.
        max_payload_bytes: larger encoded calls are refused.
        automatic_tags: tags of every job, beside its own, as far as 10 have room; ``queue`` stands
            for one of its queue.
        priority_queues: the queues that have priorities.
        ring: keys that arguments are encrypted with.
        encrypts_all: encrypt the arguments of every job.
        masked: names of fields that are never shown.
        serving: which queues pools take; None where that is not known.
        for_other_processes: other processes run the jobs, and must be able to import the functions.
    """

    def __init__(
        self,
        source: str,
        max_payload_bytes: int,
        automatic_tags: Sequence[str] = (),
        priority_queues: Iterable[str] = (),
        ring: KeyRing | None = None,
        encrypts_all: bool = False,
        masked: tuple[str, ...] = (),
        serving: Serving | None = None,
        for_other_processes: bool = False,
    ) -> None:
        self.source = source
        self.max_payload_bytes = max_payload_bytes
        self._automatic_tags = tuple(automatic_tags)
        self._priority_queues = frozenset(priority_queues)
        self.ring, self.encrypts_all = ring or KeyRing(), encrypts_all
        self._masked = masked
        self._for_other_processes = for_other_processes
        self._serving = serving if serving and serving.is_known else None
        self._checked_queues: set[str] = set()

    @staticmethod
    def from_settings(settings: Settings, source: str, in_process: bool = False) -> JobFactory:
        """A factory as the settings ask for.

        Args:
            settings: of this installation.
            source: what the events name as their origin.
            in_process: this process runs the jobs itself.

        Raises:
            ConfigError: the key file cannot be used.
        """
        dispatch, host = settings.dispatch, settings.host.name
        shorthand = {"environment": f"env:{dispatch.environment}", "host": f"host:{host}"}
        return JobFactory(
            source,
            settings.jobs.max_payload_bytes,
            [shorthand.get(tag, tag) for tag in dispatch.automatic_tags],
            with_lanes(settings),
            encryption.load(settings.encryption.key_file),
            settings.encryption.every_job,
            settings.encryption.masked,
            serving(settings),
            for_other_processes=not in_process,
        )

    def event(self, call: Call, terms: Terms) -> JobDispatched:
        """The first event of a job that runs this call.

        Raises:
            UnknownJob, PayloadTooLarge, BadName, JobRefused, MissingKey
        """
        if not isinstance(call, Call):
            name = f"{call.name}(...)" if isinstance(call, JobType | NamedJob) else "my_job(...)"
            raise JobRefused(f"dispatch takes a call, {name}, found {call!r}")
        job_type, job_id = call.job, terms.job_id or new_id()
        if job_type.kind:
            derived_ids.check_workflow_id(job_id)
        if self._for_other_processes and job_type.unreachable:
            raise UnknownJob(f"{job_type.name}: {job_type.unreachable}")
        queue = self._queue(call, terms)
        if queue not in self._checked_queues:
            self._warn_if_unserved(queue)
        tags = self._tags(job_type, terms, queue)
        body = payload.encode(
            self._sealed(call, terms, self._payload(call, terms, job_id, queue, tags))
        )
        if len(body) > self.max_payload_bytes:
            raise PayloadTooLarge(
                f"{job_type.name}: the encoded call has {len(body)} bytes, "
                f"jobs.max_payload_bytes allows {self.max_payload_bytes}; "
                "write large data to a file and pass its name"
            )
        return JobDispatched(
            job_id=job_id,
            source=self.source,
            queue=queue,
            function=job_type.name,
            payload=body,
            tags=tags,
            tries=terms.tries or job_type.tries,
            due_at=terms.due_at,
            expires_at=terms.expires_at,
            kind=job_type.kind,
            version=job_type.version,
            digest=job_type.digest,
        )

    def _payload(
        self, call: Call, terms: Terms, job_id: str, queue: str, tags: tuple[str, ...]
    ) -> payload.Payload:
        job_type, expires_at = call.job, terms.expires_at
        return payload.Payload(
            id=job_id,
            function=job_type.name,
            queue=queue,
            arguments=msgspec.Raw(call.arguments),
            dispatched_at=time.time(),
            tries=terms.tries or job_type.tries,
            timeout_seconds=(
                terms.timeout_seconds or job_type.timeout_seconds or payload.UNLIMITED
            ),
            backoff=terms.backoff or job_type.retries.backoff,
            tags=tags,
            expires_at=expires_at.timestamp() if expires_at else payload.UNLIMITED,
            masked=job_type.masked + self._masked,
            step=terms.step,
            workflow=terms.workflow,
            kind=job_type.kind,
            version=job_type.version,
            workflow_timeout_seconds=terms.workflow_timeout_seconds,
        )

    def _tags(
        self, job_type: JobType[Any, Any] | NamedJob, terms: Terms, queue: str
    ) -> tuple[str, ...]:
        own = job_type.tags
        tags = registry.check_tags((*own, *terms.tags)) if terms.tags else own
        if not self._automatic_tags:
            return tags
        queue_tag = f"queue:{queue}"
        automatic = (queue_tag if tag == "queue" else tag for tag in self._automatic_tags)
        most = registry.MAX_TAGS - bool(terms.template)  # a schedule adds its name
        return registry.with_automatic(tags, automatic, most)

    def _warn_if_unserved(self, queue: str) -> None:
        """Warns once, since a job on a queue that no pool takes is accepted and waits for ever."""
        self._checked_queues.add(queue)
        if self._serving and (problem := self._serving.why_not(queue)):
            log.warning("queue %s: %s", queue, problem)

    def takes(self, queue: str) -> bool:
        """Whether a pool takes jobs of this queue; True where the pools are not known."""
        return self._serving is None or bool(self._serving.pool(queue))

    def seals(self, call: Call) -> bool:
        """Whether the arguments of this call are encrypted."""
        return call.job.encrypted or self.encrypts_all

    def priority_queues(self, queue: str) -> list[str]:
        """The queues in which jobs dispatched to this one wait: one for each priority."""
        if queue not in self._priority_queues:
            return [queue]
        return [in_lane(queue, priority) for priority in PRIORITIES]

    def _sealed(self, call: Call, terms: Terms, plain: payload.Payload) -> payload.Payload:
        if not (terms.sealed or self.seals(call)):
            return plain
        about = encryption.about_arguments(plain, template=terms.template, takes=terms.takes)
        sealed = self.ring.seal(call.arguments, about)
        return msgspec.structs.replace(plain, arguments=msgspec.Raw(sealed))

    def _queue(self, call: Call, terms: Terms) -> str:
        queue = check_name("queue", terms.queue) if terms.queue else call.job.queue
        if terms.priority not in PRIORITIES:
            raise JobRefused(
                f"priority is one of {', '.join(PRIORITIES)}, found {terms.priority!r}"
            )
        if terms.priority == "normal":
            return queue
        if queue not in self._priority_queues:
            raise JobRefused(
                f"queue {queue!r} has no priorities; set priorities = true in its pool, "
                "and dispatch with a client that was given the settings"
            )
        return in_lane(queue, terms.priority)


def from_payload(
    body: bytes,
    job_id: str,
    source: str,
    *,
    causation_id: str | None = None,
    correlation_id: str = "",
    handed: dict[str, msgspec.Raw] | None = None,
    due_at: datetime | None = None,
) -> JobDispatched:
    """The first event of a job from a call that was encoded before: a step's, a callback's.

    Args:
        body: the encoded call.
        job_id: of the new job.
        source: what the event names as its origin.
        causation_id: id of the event that caused it.
        correlation_id: the batch or graph that it belongs to.
        handed: arguments that were not known when the call was encoded.
        due_at: not started before this.

    Raises:
        msgspec.MsgspecError, ValueError: ``body`` is no encoded call.
    """
    template = payload.decode(body)
    check_name("queue", template.queue)
    all_handed = {**(template.handed or {}), **(handed or {})} or None
    call = msgspec.structs.replace(
        template, id=job_id, dispatched_at=time.time(), handed=all_handed
    )
    return JobDispatched(
        job_id=job_id,
        correlation_id=correlation_id or None,
        causation_id=causation_id,
        source=source,
        queue=call.queue,
        function=call.function,
        payload=payload.encode(call),
        tags=call.tags,
        tries=call.tries,
        due_at=due_at,
        kind=call.kind,
        version=call.version,
    )


def due_at(delay: float | timedelta, at: datetime | None, now: datetime) -> datetime | None:
    """When a job is due; None for at once.

    Args:
        delay: seconds from now.
        at: a time, instead of a delay.
        now: by the broker's clock.

    Raises:
        BadTime
    """
    seconds = _seconds(delay)
    if at is not None:
        if seconds:
            raise BadTime("give delay or at, not both")
        due = _aware("at", at)
        if (due - now).total_seconds() > _MAX_DELAY_SECONDS:
            raise BadTime(f"a job is delayed by a year at most, found {due}; {_LATER}")
        return due
    if not 0 <= seconds <= _MAX_DELAY_SECONDS:
        raise BadTime(
            f"a delay is 0 s to {_MAX_DELAY_SECONDS:g} s (a year), found {seconds:g} s; {_LATER}"
        )
    return now + timedelta(seconds=seconds) if seconds else None


def expiry(
    expires: float | timedelta | datetime | None, due: datetime | None, now: datetime
) -> datetime | None:
    """Until when a job may start; None for ever.

    Args:
        expires: seconds from now, or a time.
        due: when the job is due.
        now: by the broker's clock.

    Raises:
        BadTime
    """
    if expires is None:
        return None
    if isinstance(expires, datetime):
        until = _aware("expires", expires)
    else:
        seconds = _seconds(expires)
        if not 0 < seconds <= _MAX_SECONDS:
            raise BadTime(f"a job expires after 0 s to 10 years, found {seconds:g} s")
        until = now + timedelta(seconds=seconds)
    if due is not None and until <= due:
        raise BadTime(f"the job would expire at {until}, before it is due at {due}")
    return until


def _seconds(length: float | timedelta) -> float:
    if isinstance(length, timedelta):
        return length.total_seconds()
    if isinstance(length, int | float):
        return float(length)
    raise BadTime(f"a length of time is seconds or a timedelta, found {length!r}")


def _aware(name: str, at: datetime) -> datetime:
    if at.tzinfo is None:
        raise BadTime(f"{name} needs a time zone, e.g. datetime(..., tzinfo=UTC)")
    try:
        check_instant(name, at)
    except MalformedEvent as error:
        raise BadTime(str(error)) from None
    return at.astimezone(UTC)
