"""The span that ends a scaling's story: from the command to the worker's first job."""

from __future__ import annotations

import time

from penstock import telemetry
from penstock.runtime.workers.assignment import Assignment
from penstock.telemetry import names
from penstock.worker.claiming.claimed_job import ClaimedJob


def tell_first_job(assignment: Assignment, job: ClaimedJob) -> None:
    """Child of the command's span, linked to the job's own story."""
    if not telemetry.enabled():
        return
    telemetry.start(
        names.first_job(assignment.pool),
        parent=assignment.headers,
        links=telemetry.links(job.delivery.headers),
        started_at=assignment.commanded_at,
        attributes={
            names.POOL: assignment.pool,
            names.HOST: assignment.host,
            names.WORKER: assignment.worker,
            names.JOB: job.id,
            names.SPAWN_SECONDS: time.time() - assignment.commanded_at,
        },
    ).end()
