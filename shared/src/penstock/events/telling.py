"""Decisions as sentences: the same in the log of the decider, in the CLI and wherever they go."""

from __future__ import annotations

from penstock.events.scaling import ScalingDecisionMade


def headline(made: ScalingDecisionMade) -> str:
    advice = " advised, the plan stays" if made.advice else ""
    return f"Pool {made.pool}: {made.current} → {made.target} workers{advice}"


def chain(made: ScalingDecisionMade) -> str:
    """The reasons in order: each one's sentence says the number after it."""
    return " → ".join(reason.text for reason in made.reasons) or "no reason was recorded"
