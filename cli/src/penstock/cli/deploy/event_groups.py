"""Who stores which events of jobs, batches, graphs and inboxes: each belongs to one group.

Several roles write to the histories of the same jobs. A role may store the events of its groups,
and the broker refuses it the others: an application asks for work, and cannot record how it went.
"""

from __future__ import annotations

from penstock.events.batch import (
    BatchCancelled,
    BatchCarried,
    BatchClosed,
    BatchCompleted,
    BatchCreated,
    BatchFailed,
    BatchProgressed,
    BatchReopened,
    BatchStopping,
)
from penstock.events.envelope import Event
from penstock.events.graph import (
    GraphCancelled,
    GraphCarried,
    GraphCompleted,
    GraphElapsed,
    GraphFailed,
    GraphPaused,
    GraphReopened,
    GraphResumed,
    GraphSignalled,
    GraphStarted,
    GraphStopping,
    GraphTimedOut,
    GraphWaiting,
)
from penstock.events.job import (
    JobCancelled,
    JobCarried,
    JobCommitted,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobFailed,
    JobMoved,
    JobProgressed,
    JobRecovered,
    JobReleased,
    JobRetrying,
    JobRevived,
    JobStarted,
    JobTagged,
)
from penstock.events.workflow import (
    InboxCarried,
    MemoCarried,
    SignalReceived,
    StepRecorded,
    StepsScheduled,
    WorkflowAdvanced,
    WorkflowBlocked,
    WorkflowCancelling,
    WorkflowContinued,
    WorkflowFixed,
    WorkflowPaused,
    WorkflowResumed,
)

Group = tuple[type[Event], ...]

ASKED: Group = (
    JobDispatched,
    JobCancelled,
    JobTagged,
    BatchCreated,
    BatchClosed,
    BatchStopping,
    GraphStarted,
    GraphSignalled,
    GraphStopping,
    GraphPaused,
    GraphResumed,
    WorkflowCancelling,
    WorkflowPaused,
    WorkflowResumed,
    SignalReceived,
)
"""What an application asks for."""
RECORDED: Group = (
    JobStarted,
    JobProgressed,
    JobCommitted,
    JobCompleted,
    JobFailed,
    JobRetrying,
    WorkflowAdvanced,
    StepRecorded,
    StepsScheduled,
    WorkflowBlocked,
    WorkflowContinued,
)
"""How a job runs, by the process that runs it."""
RECOVERED: Group = (JobReleased, JobRecovered, JobDead)
"""What becomes of a job that no process runs any more."""
JUDGED: Group = (
    BatchProgressed,
    BatchCompleted,
    BatchFailed,
    BatchCancelled,
    GraphWaiting,
    GraphElapsed,
    GraphTimedOut,
    GraphCompleted,
    GraphFailed,
    GraphCancelled,
)
"""How batches and graphs stand."""
CARRIED: Group = (JobCarried, MemoCarried, BatchCarried, GraphCarried, InboxCarried)
"""Events that count when all earlier ones have left the log."""
RETRIED: Group = (JobMoved, JobRevived, WorkflowFixed, BatchReopened, GraphReopened)
"""Events that requeue, move or fix a job, or reopen a batch or graph. Refused before the first
step, so that a command that may not remove the dead letters, the second, does not begin."""
GROUPS = (ASKED, RECORDED, RECOVERED, JUDGED, CARRIED, RETRIED)
NOUNS = tuple(dict.fromkeys(event.noun for group in GROUPS for event in group))


def subject(event: type[Event]) -> str:
    """The subject of an event of any key, without the installation's prefix."""
    return f"events.{event.noun}.*.{event.__name__}"
