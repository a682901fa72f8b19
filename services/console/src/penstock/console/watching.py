"""What the console publishes about itself: metrics, and whether it is ready."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from penstock.console.parts import Console
from penstock.console.read_models.projection import BEHIND_SECONDS, Standing
from penstock.runtime.service import Service
from penstock.telemetry import metrics
from penstock.telemetry.meters import Reading


def watch(service: Service, console: Console) -> None:
    """Has the process's ``/metrics`` and ``/readyz`` show this console."""
    service.meters.read(partial(readings, console))
    service.checks.require("rows", lambda: _why_not_current(console.standing))


def readings(console: Console) -> Iterable[Reading]:
    """The console's own numbers."""
    standing = console.standing
    yield Reading(metrics.CONSOLE_POSITION, standing.position)
    yield Reading(metrics.CONSOLE_BEHIND, standing.behind_seconds)
    yield Reading(metrics.CONSOLE_FOLDED, console.projection.folded)
    yield Reading(metrics.CONSOLE_REBUILDING, float(bool(standing.rebuilding)))
    yield Reading(metrics.CONSOLE_PAGES, console.hub.clients)
    yield Reading(metrics.CONSOLE_DATABASE, console.store.size_bytes)


def _why_not_current(standing: Standing) -> str:
    if standing.silent_since is not None:
        return f"the broker has not answered since {standing.silent_since:%H:%M:%S} UTC"
    if standing.behind_seconds <= BEHIND_SECONDS:
        return ""
    late = f"the rows are {standing.behind_seconds:.0f} s behind the event log"
    return "; ".join((late, *standing.held_back))
