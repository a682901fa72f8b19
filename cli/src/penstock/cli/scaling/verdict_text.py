"""The verdict of a replay as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.decider.replay.verdict import Difference, Verdict
from penstock.views import wording


def sentences(verdict: Verdict, program: str) -> Iterator[str]:
    """The verdict as lines of text.

    Args:
        verdict: of the whole log.
        program: version and fingerprint of the code that recomputed it.
    """
    if not verdict.rounds:
        yield "Nothing could be recomputed: no round with a checkpoint before it is in the log."
    else:
        yield (
            f"{wording.clock(verdict.begins_at)} to {wording.clock(verdict.ends_at)}: "
            f"{verdict.rounds} rounds with {verdict.decisions} decisions, {verdict.published} of "
            f"them on the event log, decided by {' and '.join(verdict.programs)}."
        )
        yield (
            f"Equal bit for bit: {_share(verdict.equal_decisions, verdict.decisions)} decisions, "
            f"{_share(verdict.equal_published, verdict.published)} events, "
            f"{_share(verdict.equal_states, verdict.states)} states at checkpoints."
        )
    if any(decider != program for decider in verdict.programs):
        yield (
            f"Recomputed by another program, {program}: what differs may come from that "
            f"({verdict.other_program} rounds that differ were decided by another one)."
        )
    if verdict.gaps:
        yield f"{verdict.gaps} rounds cannot be recomputed:"
        for gap in verdict.unproven:
            yield f"  {wording.clock(gap.at)} round {gap.epoch}.{gap.round}: {gap.why}"
    if verdict.orphans:
        yield f"{verdict.orphans} decisions on the event log belong to no recorded round."
    yield from (f"Not a decision: {message}" for message in verdict.unreadable)
    for difference in verdict.differences:
        yield _headline(difference)
        yield from (f"  {sentence}" for sentence in difference.what)


def _headline(difference: Difference) -> str:
    number = f"{difference.epoch}.{difference.round}"
    subject = "the whole round"
    if difference.pool:
        subject = f"pool {difference.pool}, decision {difference.decision}"
    at = wording.clock(difference.at)
    return f"{at} round {number}, {subject}, by {difference.program}:"


def _share(part: int, total: int) -> str:
    return f"all {total}" if part == total else f"{part} of {total}"
