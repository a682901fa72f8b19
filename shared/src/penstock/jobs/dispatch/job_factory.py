"""From a call and the terms of its dispatch to the event that tells of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from penstock.config import Settings
from penstock.config.serving import Serving, serving
from penstock.config.topology import PRIORITIES, Priority, in_lane, with_lanes
from penstock.events.envelope import MalformedEvent, check_instant, new_id
from penstock.events.job import JobDispatched
from penstock.events.subjects import check_name
from penstock.jobs import registry
from penstock.jobs.errors import BadTime, JobRefused, PayloadTooLarge, UnknownJob
from penstock.jobs.payloads import encryption, payload
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.registry import Call

log = logging.getLogger("penstock.jobs")

_MAX_DELAY_SECONDS = 366 * 86_400.0
_MAX_SECONDS = 10 * 366 * 86_400.0
_LATER = "use a schedule for what is further away"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a dispatch says beside the call itself.

    Attributes:
        queue: empty: the function's own. due_at: not before this. expires_at: not started after.
        template: jobs of other ids will be made of it, which begin with this and a hyphen.
        sealed: encrypt the arguments although the job does not ask for it.
        takes: parameters left open, with the job whose result each will be given.
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


class Maker:
    """Makes the first events of jobs.

    Args:
        source: what they say about where they come from.
        max_payload_bytes: larger encoded calls are refused.
        automatic: tags of every job, beside its own, as far as 10 have room; ``queue`` stands for
            one of its queue.
        lanes: the queues that have priorities.
        ring: what arguments are encrypted with. encrypts_all: those of every job.
        masked: names of fields that are never shown.
        serving: which queues pools take; None where that is not known.
        for_others: other processes run the jobs, and must be able to import their functions.
    """

    def __init__(
        self,
        source: str,
        max_payload_bytes: int,
        automatic: Sequence[str] = (),
        lanes: Iterable[str] = (),
        ring: KeyRing | None = None,
        encrypts_all: bool = False,
        masked: tuple[str, ...] = (),
        serving: Serving | None = None,
        for_others: bool = False,
    ) -> None:
        self.source = source
        self._max_payload_bytes = max_payload_bytes
        self._automatic = tuple(automatic)
        self._lanes = frozenset(lanes)
        self.ring, self._encrypts_all = ring or KeyRing(), encrypts_all
        self._masked = masked
        self._for_others = for_others
        self._serving = serving if serving and serving.is_known else None
        self._queues_seen: set[str] = set()

    def event(self, call: Call, terms: Terms) -> JobDispatched:
        """Raises UnknownJob, PayloadTooLarge, BadName, JobRefused, MissingKey."""
        kind, job_id = call.job, terms.job_id or new_id()
        if self._for_others and kind.unreachable:
            raise UnknownJob(f"{kind.name}: {kind.unreachable}")
        queue = self._queue(call, terms)
        if queue not in self._queues_seen:
            self._note_queue(queue)
        tags = registry.check_tags((*kind.tags, *terms.tags)) if terms.tags else kind.tags
        if self._automatic:
            own = f"queue:{queue}"
            automatic = (own if tag == "queue" else tag for tag in self._automatic)
            most = registry.MAX_TAGS - bool(terms.template)  # a schedule adds its name
            tags = registry.with_automatic(tags, automatic, most)
        body = payload.encode(
            self._sealed(
                call,
                terms,
                payload.Payload(
                    id=job_id,
                    function=kind.name,
                    queue=queue,
                    arguments=msgspec.Raw(call.arguments),
                    dispatched_at=time.time(),
                    tries=kind.tries,
                    timeout_seconds=kind.timeout_seconds or payload.UNLIMITED,
                    backoff=kind.retries.backoff,
                    tags=tags,
                    expires_at=terms.expires_at.timestamp()
                    if terms.expires_at
                    else payload.UNLIMITED,
                    masked=kind.masked + self._masked,
                ),
            )
        )
        if len(body) > self._max_payload_bytes:
            raise PayloadTooLarge(
                f"{kind.name}: the encoded call has {len(body)} bytes, "
                f"jobs.max_payload_bytes allows {self._max_payload_bytes}; "
                "write large data to a file and pass its name"
            )
        return JobDispatched(
            job_id=job_id,
            source=self.source,
            queue=queue,
            function=kind.name,
            payload=body,
            tags=tags,
            tries=kind.tries,
            due_at=terms.due_at,
            expires_at=terms.expires_at,
        )

    def _note_queue(self, queue: str) -> None:
        """Warns once, since a job on a queue that no pool takes is accepted and waits for ever."""
        self._queues_seen.add(queue)
        if self._serving and (problem := self._serving.why_not(queue)):
            log.warning("queue %s: %s", queue, problem)

    def takes(self, queue: str) -> bool:
        """Whether a pool takes jobs of this queue; True where the pools are not known."""
        return self._serving is None or bool(self._serving.pool(queue))

    def seals(self, call: Call) -> bool:
        """Whether the arguments of this call are encrypted."""
        return call.job.encrypted or self._encrypts_all

    def lanes_of(self, queue: str) -> list[str]:
        """The queues that jobs dispatched to this one lie in."""
        known = queue in self._lanes
        return [in_lane(queue, each) for each in PRIORITIES] if known else [queue]

    def _sealed(self, call: Call, terms: Terms, plain: payload.Payload) -> payload.Payload:
        if not (terms.sealed or self.seals(call)):
            return plain
        about = encryption.about_arguments(plain, template=terms.template, takes=terms.takes)
        sealed = self.ring.seal(call.arguments, about)
        return msgspec.structs.replace(plain, arguments=msgspec.Raw(sealed))

    def _queue(self, call: Call, terms: Terms) -> str:
        queue = check_name("queue", terms.queue) if terms.queue else call.job.queue
        if terms.priority == "normal":
            return queue
        if queue not in self._lanes:
            raise JobRefused(
                f"queue {queue!r} has no priorities; set priorities = true in its pool, "
                "and dispatch with a client that was given the settings"
            )
        return in_lane(queue, terms.priority)


def maker(settings: Settings, source: str, in_process: bool = False) -> Maker:
    """As the settings say. Args: in_process: this process runs the jobs itself."""
    said = settings.dispatch
    known = {"environment": f"env:{said.environment}", "host": f"host:{settings.host.name}"}
    automatic = [known.get(tag, tag) for tag in said.automatic_tags]
    return Maker(
        source,
        settings.jobs.max_payload_bytes,
        automatic,
        with_lanes(settings),
        encryption.load(settings.encryption.key_file),
        settings.encryption.every_job,
        settings.encryption.masked,
        serving(settings),
        for_others=not in_process,
    )


def due_at(delay: float | timedelta, at: datetime | None, now: datetime) -> datetime | None:
    """When a job is due; None for at once. Raises BadTime.

    Args:
        now: by the broker's clock.
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
    """Until when a job may start; None for ever. Raises BadTime.

    Args:
        now: by the broker's clock.
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
    return length.total_seconds() if isinstance(length, timedelta) else float(length)


def _aware(name: str, at: datetime) -> datetime:
    if at.tzinfo is None:
        raise BadTime(f"{name} needs a time zone, e.g. datetime(..., tzinfo=UTC)")
    try:
        check_instant(name, at)
    except MalformedEvent as error:
        raise BadTime(str(error)) from None
    return at.astimezone(UTC)
