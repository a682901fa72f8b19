"""Queue messages: what they must be before anything of them is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from penstock import telemetry
from penstock.bus.protocol import Delivery
from penstock.config import Profile
from penstock.events.job import JobError
from penstock.events.subjects import Subjects, check_name
from penstock.jobs import registry
from penstock.jobs.errors import BadArguments, MissingKey, Undecryptable, UnknownJob
from penstock.jobs.job_log import trace_of
from penstock.jobs.job_type import JobType
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.encryption import KeyRing, arguments, is_sealed
from penstock.jobs.queues import queue_messages
from penstock.jobs.queues.pauses import Resumptions
from penstock.jobs.running import worker_loss
from penstock.jobs.workflows.coded.workflow_type import WorkflowType
from penstock.worker.claiming.claimed_job import ClaimedJob

_MAX_SEQUENCE, _MAX_ATTEMPT = 2**63, 2**31


class Refused(Exception):
    """A queue message that this worker does not run."""


class Rejected(Refused):
    """A queue message that cannot be run, with the kind of error to record.

    Attributes:
        lacks_code: another version of the job code may run it.
        attempt: that the message was made for.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        job_id: str = "",
        made_from: int = 0,
        *,
        lacks_code: bool = False,
        attempt: int = 1,
    ) -> None:
        super().__init__(message)
        self.error = JobError(kind=kind, message=message[:4000])
        self.job_id, self.made_from = job_id, made_from
        self.lacks_code, self.attempt = lacks_code, attempt


class Unknown(Refused):
    """A call that the job code of this worker does not know: another version's may.

    Attributes:
        kind: of the error that is recorded when no worker knows it.
        signature_differs: of the function, or there is none of that name; else it is a value that
            does not fit, which another version of the function may take.
        job_id: of the job.
        made_from: as of :class:`Rejected`.
        attempt: that the message was made for.
    """

    def __init__(
        self, kind: str, message: str, envelope: Envelope, signature_differs: bool = True
    ) -> None:
        super().__init__(message)
        self.kind, self.signature_differs = kind, signature_differs
        self.job_id, self.made_from = envelope.call.id, envelope.sequence
        self.attempt = envelope.attempt

    def rejected(self, why: str = "") -> Rejected:
        """The refusal of a job that no worker knows."""
        message = f"{self}; {why}" if why else str(self)
        return Rejected(
            self.kind,
            message,
            self.job_id,
            self.made_from,
            lacks_code=self.signature_differs,
            attempt=self.attempt,
        )


class Locked(Refused):
    """A job that this worker has no key for: another may have it, or this one later.

    Attributes:
        key: id of the key. job_id / made_from / attempt: as of :class:`Unknown`.
    """

    def __init__(self, message: str, key: str, envelope: Envelope) -> None:
        super().__init__(message)
        self.key = key
        self.job_id, self.made_from = envelope.call.id, envelope.sequence
        self.attempt = envelope.attempt


class Envelope(NamedTuple):
    """A queue message before its arguments are looked at.

    Attributes:
        sequence: of the event that it was made from.
    """

    call: payload.Payload
    sequence: int
    attempt: int


class Reader:
    """Reads the messages of queues.

    Args:
        profile: the pool's, for what a job leaves open.
        resumptions: when a queue was last resumed: a pause is no part of the pickup time.
        now: POSIX seconds, broker's clock.
    """

    def __init__(
        self,
        subjects: Subjects,
        ring: KeyRing,
        profile: Profile,
        resumptions: Resumptions,
        now: Callable[[], float],
    ) -> None:
        self._now = now
        self._subjects, self._ring = subjects, ring
        self._profile, self._resumptions = profile, resumptions

    def read(self, delivery: Delivery, envelope: Envelope | None = None) -> ClaimedJob:
        """The job of a message, not yet claimed: its token is 0.

        Args:
            envelope: the message's, where it was read before.

        Raises:
            Rejected, Locked, Unknown
        """
        envelope = envelope or self.envelope(delivery)
        call, sequence, attempt = envelope
        kind, decoded = self._typed(envelope, queue_messages.version(delivery.headers))
        now, tries = self._now(), call.tries or kind.tries
        stored_at = queue_messages.since(delivery, queue_messages.AVAILABLE)
        available = max(stored_at, self._resumptions.last(call.queue, now))
        return ClaimedJob(
            delivery=delivery,
            payload=call,
            kind=kind,
            arguments=decoded,
            attempt=attempt,
            token=0,
            sequence=sequence,
            pickup_seconds=max(now - available, 0.0),
            # a call by name leaves to the function what a call of the function carries
            timeout_seconds=call.timeout_seconds
            or kind.timeout_seconds
            or self._profile.timeout_seconds,
            tries=tries or self._profile.tries,
            started_at=now,
            most_beside=_most_beside(delivery),
            trace=trace_of(delivery.headers),
            is_traced=not telemetry.beyond_pace(),
            # a workflow goes on from what it recorded: a second run of an advance does no harm
            max_lost=worker_loss.own_limit(kind.max_lost, 0 if kind.kind else tries),
        )

    def envelope(self, delivery: Delivery) -> Envelope:
        """The call of a message, its arguments unread. Raises Rejected."""
        headers = delivery.headers
        job_id = headers.get(queue_messages.JOB, "")
        try:
            sequence = int(headers.get(queue_messages.SEQUENCE, ""))
            attempt = int(headers.get(queue_messages.ATTEMPT, "1"))
            check_name("job", job_id)
            call = payload.decode(delivery.body)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise Rejected("malformed", f"not a job message: {error}") from error
        if call.id != job_id:
            raise Rejected("malformed", f"header names job {job_id}, body names {call.id[:80]}")
        if delivery.subject != self._subjects.queue(call.queue):
            raise Rejected("malformed", f"came on {delivery.subject}, names {call.queue[:80]!r}")
        if not (0 < sequence < _MAX_SEQUENCE and 0 < attempt < _MAX_ATTEMPT):
            raise Rejected("malformed", "its sequence or attempt is out of range")
        return Envelope(call, sequence, attempt)

    def _typed(self, envelope: Envelope, version: int) -> tuple[JobType[Any, Any], dict[str, Any]]:
        call, sequence, _ = envelope
        try:
            kind = _serving(registry.find(call.function), version, envelope)
            if kind.encrypted and not is_sealed(call.arguments):
                raise Rejected(
                    "not-encrypted",
                    f"job {kind.name} is declared encrypted=True, its arguments are plain: "
                    "their sender may hold no key; dispatch it with encryption.key_file set",
                    call.id,
                    sequence,
                )
            return kind, kind.decode(arguments(call, self._ring))
        except UnknownJob as error:
            raise Unknown("unknown-job", str(error), envelope) from error
        except BadArguments as error:
            differs = error.signature_differs
            raise Unknown("bad-arguments", str(error), envelope, differs) from error
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise Rejected("bad-arguments", str(error), call.id, sequence) from error
        except Undecryptable as error:
            raise Rejected("undecryptable", str(error), call.id, sequence) from error
        except MissingKey as error:
            raise Locked(str(error), error.key, envelope) from error


def _serving(kind: JobType[Any, Any], version: int, envelope: Envelope) -> JobType[Any, Any]:
    """The function that runs the job; of a workflow that of its version. Raises Unknown."""
    if not isinstance(kind, WorkflowType):
        return kind
    serving = kind.serving(version)
    if serving is None:
        raise Unknown("unknown-version", kind.why_not(version), envelope)
    return serving


def _most_beside(delivery: Delivery) -> int:
    """What the message says of losses before it; the job's own events say more where it is old."""
    beside = delivery.headers.get(queue_messages.BESIDE)
    if beside is None:
        return 0
    try:
        return max(int(beside), 0)
    except ValueError:
        return 0
