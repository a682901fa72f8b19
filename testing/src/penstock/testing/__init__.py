"""Tests of code that dispatches jobs: a broker in memory, the real worker, assertions."""

from penstock.testing.bench import Bench
from penstock.testing.dispatched import Dispatched
from penstock.testing.sync import SyncBench

__all__ = ["Bench", "Dispatched", "SyncBench"]
