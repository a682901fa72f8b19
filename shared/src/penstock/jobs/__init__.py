"""The author's side: mark a function as a job, dispatch it, ask how it went."""

from penstock.jobs.batches.outcome import Outcome
from penstock.jobs.client import Client
from penstock.jobs.dispatch.awaiting import Awaiting, awaiting
from penstock.jobs.errors import (
    AlreadyDispatched,
    BadArguments,
    Cancelled,
    Defer,
    JobRefused,
    NotFound,
    Skip,
    UnknownJob,
)
from penstock.jobs.job_filter import JobFilter
from penstock.jobs.job_type import Call, JobType, NamedJob
from penstock.jobs.middleware import RateLimited, Timeout, Unique, WithoutOverlapping
from penstock.jobs.registry import job
from penstock.jobs.retry import Backoff
from penstock.jobs.running.context import Context
from penstock.jobs.schedules.declaration import schedule
from penstock.jobs.sync import SyncClient
from penstock.jobs.workflows.client import Step

__all__ = [
    "AlreadyDispatched",
    "Awaiting",
    "Backoff",
    "BadArguments",
    "Call",
    "Cancelled",
    "Client",
    "Context",
    "Defer",
    "JobFilter",
    "JobRefused",
    "JobType",
    "NamedJob",
    "NotFound",
    "Outcome",
    "RateLimited",
    "Skip",
    "Step",
    "SyncClient",
    "Timeout",
    "Unique",
    "UnknownJob",
    "WithoutOverlapping",
    "awaiting",
    "job",
    "schedule",
]
