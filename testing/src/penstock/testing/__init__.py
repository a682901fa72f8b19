"""Tests of code that dispatches jobs: a broker in memory, the real worker, assertions."""

from penstock.testing.bench import Bench
from penstock.testing.crashing import Crash
from penstock.testing.dispatched import Dispatched
from penstock.testing.sync import SyncBench
from penstock.testing.workflow_run import SyncWorkflowRun, WorkflowRun

__all__ = ["Bench", "Crash", "Dispatched", "SyncBench", "SyncWorkflowRun", "WorkflowRun"]
