"""The author's side: mark a function as a job, dispatch it, ask how it went."""

from penstock.jobs.client import Client
from penstock.jobs.context import Context
from penstock.jobs.errors import (
    AlreadyDispatched,
    BadArguments,
    Cancelled,
    JobRefused,
    NotFound,
    UnknownJob,
)
from penstock.jobs.registry import Call, JobType, job
from penstock.jobs.retry import Backoff
from penstock.jobs.sync import SyncClient

__all__ = [
    "AlreadyDispatched",
    "Backoff",
    "BadArguments",
    "Call",
    "Cancelled",
    "Client",
    "Context",
    "JobRefused",
    "JobType",
    "NotFound",
    "SyncClient",
    "UnknownJob",
    "job",
]
