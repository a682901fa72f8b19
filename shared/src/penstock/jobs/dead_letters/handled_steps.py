"""Dead steps of workflows that dealt with the failure: a retry of many jobs leaves them out.

Such a step would do its work again (reserve what was released, charge what was refunded), and its
workflow would not take note of it.
"""

from __future__ import annotations

from penstock.jobs import derived_ids
from penstock.jobs.errors import JobRefused
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.coded import memo

_WITHOUT_STEPS = (State.COMPLETED, State.CANCELLED)


async def refusal(log: JobLog, job_id: str) -> JobRefused | None:
    """Why a dead job is not retried along with others; None for one that may be.

    A step that its workflow has not taken note of may be: that of a dead workflow for example,
    which goes on with the new end once it is retried, too.

    Raises:
        BusError
    """
    owner = derived_ids.step(job_id)
    record = await log.read(owner[0]) if owner else None
    if owner is None or record is None or record.workflow is None:
        return None
    workflow_id, number = owner
    awaited = {step.n for step in memo.open_steps(record.workflow).values()}
    if number in awaited and record.state not in _WITHOUT_STEPS:
        return None
    return JobRefused(
        f"job {job_id} is a step of workflow {workflow_id}, which took note of its failure; "
        f"'penstock dead retry {job_id}' runs it all the same"
    )
