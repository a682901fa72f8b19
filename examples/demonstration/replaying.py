"""The proof of the decisions: the whole log is read, and every decision in it recomputed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.bus.protocol import Bus
from penstock.cli.scaling import recorded_rounds
from penstock.cli.scaling.recorded_rounds import Span
from penstock.decider.replay import stretches
from penstock.decider.replay.verdict import Verdict
from penstock.events.subjects import Subjects

LOG = "decisions.jsonl"


async def replay(bus: Bus, subjects: Subjects, folder: Path) -> Verdict:
    """The verdict of `penstock replay` on the log so far.

    Args:
        bus: a connection.
        subjects: of the installation.
        folder: the log is stored there as a file.
    """
    path = folder / LOG
    with path.open("wb") as file:
        await recorded_rounds.save(bus, subjects, Span(), file, lambda _: None)
    return await asyncio.to_thread(stretches.verify, path)


def sentence(verdict: Verdict) -> str:
    """The verdict as a sentence of the report."""
    equal = (
        f"{verdict.equal_decisions} of {verdict.decisions} decisions recomputed equal, bit for "
        f"bit; of these {verdict.equal_published} of {verdict.published} on the event log; "
        f"{verdict.equal_states} of {verdict.states} states at checkpoints"
    )
    beside = {"rounds without their records": verdict.gaps, "without their round": verdict.orphans}
    return "; ".join([equal, *(f"{count} {what}" for what, count in beside.items() if count)])
