"""The simulated source keeps the contract of all sources."""

from __future__ import annotations

import pytest

from penstock.testing.sources import SimulatedSystem, SourceContract


class TestSimulated(SourceContract):
    @pytest.fixture
    def system(self) -> SimulatedSystem:
        return SimulatedSystem()
