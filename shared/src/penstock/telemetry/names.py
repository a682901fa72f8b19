"""Every span and attribute name, declared once.

``messaging.*`` and ``error.type`` follow OpenTelemetry's messaging conventions, ``penstock.*`` is
our own. The docstring below a name is what the reference page says about it.

A job's trace is ``dispatch`` ─► ``run`` ─► ``spark …``. The jobs of a batch or graph share the
trace of its own span, and a step links to the dispatches of those it waited for. A scaling's trace
is ``measure`` ─► ``decide`` ─► ``command`` ─► ``spawn`` ─► ``first job``.
"""

from __future__ import annotations

from typing import Final


# --- spans ---------------------------------------------------------------------------------------
def dispatch(queue: str) -> str:
    """A client hands a job to its queue: starts the job's trace. Kind: producer."""
    return f"dispatch {queue}"


def workflow(noun: str) -> str:
    """A ``batch`` or ``graph`` is handed over: starts the trace of all its jobs. Kind: producer."""
    return noun


def workflow_end(noun: str) -> str:
    """A batch or graph from its dispatch to its end; child of its dispatch. Kind: internal."""
    return f"{noun} as a whole"


def run(function: str) -> str:
    """One attempt of a job; child of its dispatch, which it links to as well. Kind: consumer."""
    return f"run {function}"


def spark(operation: str) -> str:
    """Work done by Spark for a job: ``session`` (opened) or ``query``. Kind: client."""
    return f"spark {operation}"


def measure(pool: str) -> str:
    """A snapshot of a pool is taken: starts a scaling's trace. Kind: producer."""
    return f"measure {pool}"


def decide(pool: str) -> str:
    """A decision; child of the newest snapshot it used, linked to all of them. Kind: consumer."""
    return f"decide {pool}"


def command(host: str) -> str:
    """A plan is sent to a host; child of the decision that changed it. Kind: producer."""
    return f"command {host}"


def spawn(pool: str) -> str:
    """From command received to worker ready; child of the command. Kind: consumer."""
    return f"spawn {pool}"


def first_job(pool: str) -> str:
    """A new worker took its first job: ends the scaling's trace, linked to the job's. Internal."""
    return f"first job {pool}"


# --- messaging conventions -----------------------------------------------------------------------
MESSAGING_SYSTEM: Final = "messaging.system"
"""Always ``nats``."""
MESSAGING_OPERATION_NAME: Final = "messaging.operation.name"
"""``dispatch``, ``run``, ``measure``, ``decide``, ``command`` or ``spawn``."""
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
"""``send`` or ``process``."""
MESSAGING_DESTINATION: Final = "messaging.destination.name"
"""Queue, pool or host that the message is for."""
MESSAGING_MESSAGE_ID: Final = "messaging.message.id"
"""Job id, or the event's id."""
MESSAGING_BODY_SIZE: Final = "messaging.message.body.size"
"""Encoded size, bytes."""
MESSAGING_BATCH_COUNT: Final = "messaging.batch.message_count"
"""Messages handled by one span (``dispatch_many``)."""
MESSAGING_CLIENT_ID: Final = "messaging.client.id"
"""Service and instance, as in the events' ``source``."""
ERROR_TYPE: Final = "error.type"
"""Dotted name of the exception that ended the span."""

NATS: Final = "nats"
"""Value of ``messaging.system``."""
SEND: Final = "send"
"""Value of ``messaging.operation.type``: a message is handed over."""
PROCESS: Final = "process"
"""Value of ``messaging.operation.type``: a message is worked on."""

# --- our own -------------------------------------------------------------------------------------
POOL: Final = "penstock.pool"
"""Pool's name."""
WORKFLOW: Final = "penstock.workflow.id"
"""Id of a batch or graph."""
WORKFLOW_TITLE: Final = "penstock.workflow.title"
"""Its title, for people."""
WORKFLOW_STATE: Final = "penstock.workflow.state"
"""How it ended: ``completed``, ``failed`` or ``cancelled``."""
QUEUE: Final = "penstock.queue"
"""Queue's name."""
HOST: Final = "penstock.host"
"""Host's name."""
WORKER: Final = "penstock.worker"
"""Worker's id."""
JOB: Final = "penstock.job.id"
"""Job's id, where the span is not itself about that job's message."""
FUNCTION: Final = "penstock.job.function"
"""Registered name of the job's function."""
ATTEMPT: Final = "penstock.job.attempt"
"""1 for the first attempt."""
WAIT_SECONDS: Final = "penstock.job.wait_seconds"
"""From available (dispatched or due) to started: the measured pickup time."""
FENCING_TOKEN: Final = "penstock.job.fencing_token"  # noqa: S105 - a number, not a password
"""Sequence of the attempt's JobStarted event."""
DECISION: Final = "penstock.decision.id"
"""Event id of the ScalingDecisionMade."""
SNAPSHOT: Final = "penstock.snapshot.id"
"""Event id of the PoolSnapshot."""
CURRENT_WORKERS: Final = "penstock.decision.current_workers"
"""Planned workers before the decision."""
TARGET_WORKERS: Final = "penstock.decision.target_workers"
"""Planned workers after the decision."""
REASON: Final = "penstock.decision.reason"
"""Text of the last reason of the chain."""
STRATEGY: Final = "penstock.decision.strategy"
"""Strategy that decided."""
EPOCH: Final = "penstock.command.epoch"
"""Leader's fencing token."""
VERSION: Final = "penstock.command.version"
"""Counts up within an epoch."""
SPAWN_SECONDS: Final = "penstock.worker.spawn_seconds"
"""From command received to first job taken."""
SPARK_SESSION: Final = "penstock.spark.session_id"
"""Spark Connect session, as the Spark UI shows it."""
SPARK_OPERATION: Final = "penstock.spark.operation_id"
"""Spark Connect operation, as the Spark UI shows it."""
SPARK_TAGS: Final = "penstock.spark.tags"
"""Tags on the operation: job id, fencing token, trace id."""
