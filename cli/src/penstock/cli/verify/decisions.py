"""Decisions of the log, computed again: `penstock replay` as one of the rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.bus.protocol import Bus
from penstock.cli.scaling import recorded_rounds
from penstock.cli.scaling.recorded_rounds import Progress, Span
from penstock.decider.program import program
from penstock.decider.replay import stretches
from penstock.decider.replay.verdict import Verdict
from penstock.events.subjects import Subjects
from penstock.verifying.checker import Report
from penstock.verifying.rules import Rule, Violation


async def read(bus: Bus, subjects: Subjects, span: Span, path: Path, progress: Progress) -> int:
    """Writes the inputs of decisions to a file; returns the number of rounds."""
    with path.open("wb") as file:
        return await recorded_rounds.save(bus, subjects, span, file, progress)


def judge(path: Path, processes: int, progress: Progress, report: Report) -> None:
    """Adds what was computed again to the report.

    Args:
        path: of the file that :func:`read` wrote.
        processes: that compute at a time.
        progress: is called with the share that is done.
        report: is filled.
    """
    verdict = stretches.verify(path, processes=processes, progress=progress)
    report.decisions = verdict.decisions
    report.add(_violations(verdict))
    own = program()
    others = sum(difference.program != own for difference in verdict.differences)
    if verdict.other_program or others:
        report.unjudged.append(
            f"{verdict.other_program or others} rounds that differ were decided by another "
            f"program than this one ({own}): use that version to judge them"
        )
    if verdict.gaps:
        report.unjudged.append(
            f"{verdict.gaps} rounds of decisions cannot be computed again: "
            f"{verdict.unproven[0].why if verdict.unproven else 'their inputs are not in the log'}"
        )
    if verdict.orphans:
        report.unjudged.append(f"{verdict.orphans} decisions belong to no recorded round")


def _violations(verdict: Verdict) -> Iterator[Violation]:
    own = program()
    for difference in verdict.differences:
        if difference.program == own:
            pool = f"pool {difference.pool}, " if difference.pool else ""
            yield Violation(
                rule=Rule.DECISION,
                subject=f"{pool}round {difference.epoch}.{difference.round}",
                text="; ".join(difference.what),
            )
    for message in verdict.unreadable:
        yield Violation(rule=Rule.READABLE, subject="decision", text=message)
