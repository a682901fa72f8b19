"""Tests of code that dispatches jobs: a broker in memory, the real worker, assertions."""

from penstock.testing.bench import Bench
from penstock.testing.crashing import Crash
from penstock.testing.dispatched import Dispatched
from penstock.testing.inline import RunFailed, run_inline, run_inline_async
from penstock.testing.inline_definition import run_definition, run_definition_async
from penstock.testing.sync import SyncBench
from penstock.testing.workflow_run import SyncWorkflowRun, WorkflowRun

__all__ = [
    "Bench",
    "Crash",
    "Dispatched",
    "RunFailed",
    "SyncBench",
    "SyncWorkflowRun",
    "WorkflowRun",
    "run_definition",
    "run_definition_async",
    "run_inline",
    "run_inline_async",
]
