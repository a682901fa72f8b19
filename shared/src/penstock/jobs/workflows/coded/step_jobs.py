"""The jobs that are steps of a workflow. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from penstock.events.job import JobDispatched, JobError
from penstock.events.workflow_memo import Resolution, ScheduledStep
from penstock.jobs import derived_ids
from penstock.jobs.batches.batch_record import MAX_TITLE_LENGTH, BatchRecord
from penstock.jobs.dispatch import job_factory
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.payload import Payload


def step_event(workflow_id: str, step: ScheduledStep, source: str) -> JobDispatched:
    """The first event of the job of a step.

    Raises:
        msgspec.MsgspecError, ValueError: what was recorded is no call.
    """
    return job_factory.from_payload(
        step.payload,
        derived_ids.step_id(workflow_id, step.n),
        source,
        correlation_id=workflow_id,
        due_at=step.starts_at,
    )


def step_events(
    workflow_id: str, steps: Iterable[ScheduledStep], source: str
) -> list[JobDispatched]:
    """Of those of the steps that are jobs."""
    return [step_event(workflow_id, step, source) for step in steps if step.is_job]


# --- jobs that have the id of a step, and are others ----------------------------------------------
def is_another(job: JobRecord, step: ScheduledStep) -> bool:
    """Whether a job that has the id of a step was dispatched as another one.

    One that was requeued or moved may differ: only operators may do that.
    """
    if job.life > 1 or job.moved or not (job.payload and step.payload):
        return False
    return _call(job.payload) != _call(step.payload)


def is_another_batch(batch: BatchRecord, step: ScheduledStep) -> bool:
    """Whether a batch that has the id of a step was made as another one."""
    return batch.title != step.key[:MAX_TITLE_LENGTH]


def fits(body: bytes, digest: str) -> bool:
    """Whether an encoded call is one of the function and arguments of a step's digest."""
    try:
        call = payload.decode(body)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return False
    arguments = hashlib.blake2b(bytes(call.arguments), digest_size=6).hexdigest()
    return digest in {"", f"{call.function}({arguments})", f"{call.function}(encrypted)"}


def taken(other: JobRecord | BatchRecord, step: ScheduledStep) -> Resolution:
    """How a step ends of which the id is another job's, or another batch's."""
    kind = "batch" if isinstance(other, BatchRecord) else "job"
    name = other.title if isinstance(other, BatchRecord) else other.function
    message = f"the id {other.id} is taken by another {kind}: {name}, not {step.digest}"
    error = JobError(kind="id-taken", message=message)
    return Resolution(key=step.key, outcome="failed", error=error)


def _call(body: bytes) -> Payload | None:
    """What it runs, and on which terms; None for what is no call."""
    try:
        call = payload.decode(body)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None
    handed = call.handed or None
    return msgspec.structs.replace(call, id="", dispatched_at=0.0, handed=handed)
