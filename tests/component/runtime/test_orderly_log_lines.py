"""What happens in order is no warning, and each line of the log gives its reason."""

from __future__ import annotations

import logging

import pytest

from penstock.events.health import HealthChanged
from penstock.orchestrator.health_watch import sentence
from penstock.runtime.lease import Lease
from penstock.testing.memory.bus import MemoryBus


async def test_a_lease_that_is_released_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bus = MemoryBus()
    lease = Lease(bus, bus.subjects.state_stream, bus.subjects.state("lease", "x"), "a", 5.0)
    term = await lease.attempt()
    assert term is not None
    await lease.release(term)
    [line] = [record for record in caplog.records if "lease" in record.message]
    assert (line.levelname, line.message) == ("INFO", f"lease released (epoch {term.epoch})")


@pytest.mark.parametrize(
    ("state", "reasons", "text"),
    [
        ("healthy", (), "workers is healthy again"),
        ("degraded", ("a: none is ready", "b"), "workers is degraded: a: none is ready; b"),
    ],
)
def test_a_change_of_health_has_no_empty_reason(
    state: str, reasons: tuple[str, ...], text: str
) -> None:
    changed = HealthChanged(component="workers", state=state, before="warning", reasons=reasons)
    assert sentence(changed) == text
