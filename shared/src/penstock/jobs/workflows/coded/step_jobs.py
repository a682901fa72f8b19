"""The jobs that are steps of a workflow. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.events.job import JobDispatched
from penstock.events.workflow_memo import ScheduledStep
from penstock.jobs import derived_ids
from penstock.jobs.dispatch import job_factory


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
    )


def step_events(
    workflow_id: str, steps: Iterable[ScheduledStep], source: str
) -> list[JobDispatched]:
    """Of those of the steps that are jobs."""
    return [step_event(workflow_id, step, source) for step in steps if step.is_job]
