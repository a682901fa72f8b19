"""The states of a step, and what a rule makes of one all of whose needs have ended. Pure."""

from __future__ import annotations

from enum import StrEnum

from penstock.events.graph import Rule


class StepState(StrEnum):
    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    """A step before it failed, so that its rule can no longer hold."""


BAD = frozenset({StepState.FAILED, StepState.CANCELLED, StepState.BLOCKED})
ENDED = BAD | {StepState.COMPLETED, StepState.SKIPPED}


def judged(rule: Rule, needs: set[StepState]) -> StepState:
    """What a rule makes of a step all of whose needs have ended."""
    has_failed, has_completed = not needs.isdisjoint(BAD), StepState.COMPLETED in needs
    has_skipped, run, skip = StepState.SKIPPED in needs, StepState.READY, StepState.SKIPPED
    match rule:
        case Rule.ALL_DONE:
            return run
        case Rule.ANY_FAILED:
            return run if has_failed else skip
        case Rule.ANY_SUCCESS:
            return run if has_completed else StepState.BLOCKED if has_failed else skip
        case Rule.ALL_SUCCESS if not has_failed:
            return skip if has_skipped else run
        case _:
            return StepState.BLOCKED if has_failed else run
