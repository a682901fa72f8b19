"""The rules that an installation begins with: what a newcomer would want to be woken by. Pure."""

from __future__ import annotations

from penstock.console.core.alerts.rules import (
    AnyCondition,
    BudgetCap,
    Burn,
    CrashLoop,
    DeadLetters,
    Health,
    HeldByCapacity,
    HostLost,
    NoLeader,
    PredictedBreach,
    QueueAge,
    Rule,
    Severity,
    Stuck,
)

_NEVER, _DAILY, _OFTEN = 0.0, 24 * 3600.0, 4 * 3600.0
"""How often a message is repeated, in seconds."""
_LEADER, _FAST, _SLOW, _AGE = "no-leader", "burn-fast", "burn-slow", "queue-age"
"""Rules that others follow from, and are held back by."""


def _rule(
    severity: Severity,
    name: str,
    condition: AnyCondition,
    for_seconds: float,
    title: str,
    held_back_by: tuple[str, ...] = (),
    repeat_seconds: float = _OFTEN,
    group_by: tuple[str, ...] = (),
) -> Rule:
    return Rule(
        id=name,
        name=title,
        condition=condition,
        for_seconds=for_seconds,
        severity=severity,
        held_back_by=held_back_by,
        repeat_seconds=repeat_seconds,
        group_by=group_by,
    )


# fmt: off
DEFAULT_RULES: tuple[Rule, ...] = (
    _rule("page", _LEADER, NoLeader(seconds=30), 15, "No decider decides"),
    _rule("page", _FAST, Burn(pace="fast"), 60, "A promise burns fast", (_LEADER,)),
    _rule("warn", _SLOW, Burn(pace="slow"), 300, "A promise burns slowly",
          (_LEADER, _FAST), _DAILY),
    _rule("page", _AGE, QueueAge(promises=5), 120, "Jobs wait far too long", (_LEADER, _FAST)),
    _rule("note", "predicted-breach", PredictedBreach(), 300, "Jobs will start late",
          (_LEADER, _FAST, _SLOW, _AGE), _NEVER),
    _rule("warn", "held-by-capacity", HeldByCapacity(), 900, "The hosts are too small",
          (_LEADER,), _DAILY),
    _rule("warn", "budget-cap", BudgetCap(), 0, "A pool has used its worker-hours of the day",
          (_LEADER,), _NEVER),
    _rule("warn", "new-failure", DeadLetters(when="first-seen"), 0, "A new kind of failure",
          (), _NEVER, ("function",)),
    _rule("warn", "failure-surge", DeadLetters(when="surge", times=5, at_least=20), 60,
          "Many more failures than usual", (), _OFTEN, ("function",)),
    _rule("note", "failure-returned", DeadLetters(when="returned", quiet_hours=24), 0,
          "A failure is back", (), _NEVER, ("function",)),
    _rule("warn", "host-lost", HostLost(), 30, "A host is lost"),
    _rule("page", "crash-loop", CrashLoop(), 60, "Workers fail at their start"),
    _rule("warn", "stuck", Stuck(), 60, "A job is stuck", (), _OFTEN, ("pool",)),
    _rule("page", "health", Health(at_least="degraded"), 60, "A component is not well", (_LEADER,)),
)
# fmt: on
"""They have no channels: until a channel is made, alerts show on the pages alone."""
