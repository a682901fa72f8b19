"""The author's side: mark a function as a job, dispatch it, ask how it went."""

from penstock.bus.protocol import BusError, BusUnavailable, StreamFull
from penstock.events.notice import JobNotice
from penstock.jobs.batches.outcome import Outcome
from penstock.jobs.client import Client
from penstock.jobs.dead_letters.letter import LetterFilter
from penstock.jobs.dispatch.awaiting import Awaiting, awaiting
from penstock.jobs.dispatch.job_factory import Terms
from penstock.jobs.errors import (
    AlreadyDispatched,
    BadArguments,
    BadSchedule,
    BadTime,
    Cancelled,
    Changed,
    CommitRefused,
    Defer,
    JobRefused,
    JobsError,
    MissingKey,
    NoResult,
    NotFound,
    OutboxFull,
    PayloadTooLarge,
    RateLimitExceeded,
    Skip,
    StepFailed,
    TimedOut,
    Undecryptable,
    UnknownJob,
    WorkflowError,
    WrongResult,
)
from penstock.jobs.job_filter import JobFilter
from penstock.jobs.job_type import Call, JobType, NamedJob
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.jobs.middleware import RateLimited, Timeout, Unique, WithoutOverlapping
from penstock.jobs.registry import job
from penstock.jobs.retry import Backoff
from penstock.jobs.running.context import Context
from penstock.jobs.schedules.declaration import schedule
from penstock.jobs.sync import SyncClient
from penstock.jobs.workflows.coded.context import WorkflowContext
from penstock.jobs.workflows.coded.results import MapResult
from penstock.jobs.workflows.coded.workflow_type import NamedWorkflow, workflow
from penstock.jobs.workflows.declared.definition import SignalWait
from penstock.jobs.workflows.graph_order import BadGraph
from penstock.jobs.workflows.start_workflow import start_workflow
from penstock.jobs.workflows.steps import Step
from penstock.jobs.workflows.workflow_view import WorkflowView

__all__ = [
    "AlreadyDispatched",
    "Awaiting",
    "Backoff",
    "BadArguments",
    "BadGraph",
    "BadSchedule",
    "BadTime",
    "BusError",
    "BusUnavailable",
    "Call",
    "Cancelled",
    "Changed",
    "Client",
    "CommitRefused",
    "Context",
    "Defer",
    "JobFilter",
    "JobNotice",
    "JobRefused",
    "JobType",
    "JobView",
    "JobsError",
    "LetterFilter",
    "MapResult",
    "MissingKey",
    "NamedJob",
    "NamedWorkflow",
    "NoResult",
    "NotFound",
    "OutboxFull",
    "Outcome",
    "PayloadTooLarge",
    "RateLimitExceeded",
    "RateLimited",
    "SignalWait",
    "Skip",
    "State",
    "Step",
    "StepFailed",
    "StreamFull",
    "SyncClient",
    "Terms",
    "TimedOut",
    "Timeout",
    "Undecryptable",
    "Unique",
    "UnknownJob",
    "WithoutOverlapping",
    "WorkflowContext",
    "WorkflowError",
    "WorkflowView",
    "WrongResult",
    "awaiting",
    "job",
    "schedule",
    "start_workflow",
    "workflow",
]
