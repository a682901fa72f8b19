"""Tests of code that dispatches jobs: a broker in memory, the real worker, assertions."""

from penstock.testing.bench import Bench
from penstock.testing.dispatched import Dispatched
from penstock.testing.inline import RunFailed, run_inline, run_inline_async
from penstock.testing.inline_definition import run_definition, run_definition_async
from penstock.testing.sync import SyncBench

__all__ = [
    "Bench",
    "Dispatched",
    "RunFailed",
    "SyncBench",
    "run_definition",
    "run_definition_async",
    "run_inline",
    "run_inline_async",
]
