"""Policy `breach-notification`: repeats while a breach lasts, with what holds the pool back."""

from __future__ import annotations

from penstock.config.section import Positive, Section
from penstock.decider.core.notices import Notice
from penstock.decider.core.policies.policy import Aftermath, Policy, Proposal, Result
from penstock.events.scaling import Reason, SlaBreachLasts

_LIMITS = frozenset({"bounds", "policy", "cooldown", "capacity", "fair-share", "stale"})


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        every_seconds: between two events; the first follows so long after the breach began.
    """

    every_seconds: Positive = 300.0


def after(proposal: Proposal, result: Result) -> Aftermath | None:
    """`SlaBreached` itself is published without any policy."""
    since, snapshot = result.breached_at, proposal.snapshot
    if since is None:
        return Aftermath() if proposal.memory else None
    last = max(since, float(proposal.memory.get("told_at", since)))
    if snapshot is None or proposal.now - last < proposal.options.every_seconds:
        return None
    held = _held(result.reasons, result.target)
    notice = Notice(
        event=SlaBreachLasts,
        fields={
            "pool": proposal.pool,
            "breached_seconds": proposal.now - since,
            "oldest_waiting_seconds": snapshot.oldest_waiting_seconds or 0.0,
            "sla_seconds": proposal.profile.sla_seconds,
            "wanted": proposal.wanted,
            "workers": result.target,
            "held_by": held.rule if held else "",
            "text": held.text if held else "",
        },
    )
    return Aftermath(memory={"told_at": proposal.now}, notices=(notice,))


def _held(reasons: tuple[Reason, ...], target: int) -> Reason | None:
    """The step that left fewer workers than there were before it, and the last to do so."""
    lowered = [
        reason
        for reason in reasons
        if reason.step in _LIMITS and reason.values.get("from", target) > reason.workers
    ]
    return lowered[-1] if lowered else None


BREACH_NOTIFICATION = Policy(
    name="breach-notification",
    about="While a breach lasts, an event `SlaBreachLasts` every five minutes, with what holds the "
    "pool back.",
    after=after,
    options=Options,
)
