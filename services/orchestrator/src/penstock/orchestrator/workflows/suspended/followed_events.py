"""Events by which suspended workflows are followed."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.events.job import JobCarried
from penstock.events.subjects import Subjects
from penstock.events.workflow import (
    InboxCarried,
    SignalReceived,
    StepsScheduled,
    WorkflowAdvanced,
    WorkflowBlocked,
    WorkflowCancelling,
    WorkflowContinued,
    WorkflowPaused,
    WorkflowResumed,
)

_OWN_EVENTS = (
    WorkflowAdvanced,
    StepsScheduled,
    WorkflowBlocked,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowCancelling,
    WorkflowContinued,
    JobCarried,
)
OWN = tuple(event.__name__ for event in _OWN_EVENTS)
ENDS = {"JobCompleted": True, "JobDead": False, "JobCancelled": False}
_BATCH_ENDS = {"BatchCompleted": True, "BatchFailed": False, "BatchCancelled": False}
STEP_ENDS = ENDS | _BATCH_ENDS
"""Names of the ends of jobs and batches, and whether these completed."""
REQUEUED = ("JobRevived", "BatchReopened")
_INBOX = (SignalReceived.__name__, InboxCarried.__name__)


def patterns(subjects: Subjects, *, reads_ends: bool) -> Sequence[str]:
    """Subjects of these events.

    Args:
        reads_ends: with those by which what a workflow waits for ends or comes.
    """
    own = [subjects.events("job", "*", name) for name in OWN]
    if not reads_ends:
        return own
    ends = [subjects.events("job", "*", name) for name in (*ENDS, REQUEUED[0])]
    ends += [subjects.events("batch", "*", name) for name in (*_BATCH_ENDS, REQUEUED[1])]
    return [*own, *ends, *(subjects.events("workflow", "*", name) for name in _INBOX)]
