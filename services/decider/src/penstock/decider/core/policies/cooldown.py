"""Policy `cooldown`: least time between two steps in one direction."""

from __future__ import annotations

from penstock.decider.core.policies.policy import Policy, Proposal, Verdict


def before(proposal: Proposal) -> Verdict | None:
    """A step down also waits after a step up. Scaling up through a breach is never held back."""
    up = proposal.workers > proposal.current
    if proposal.workers == proposal.current or (up and proposal.urgent):
        return None
    left = _left_seconds(proposal, up)
    if left <= 0:
        return None
    return Verdict(
        workers=proposal.current,
        text=f"stays {proposal.current}: the next step {'up' if up else 'down'} "
        f"is {left:.1f} s of cooldown away",
        values={"left_seconds": left},
    )


def _left_seconds(proposal: Proposal, up: bool) -> float:
    profile = proposal.profile
    # a step down also waits for the last step up: a worker that was just added stays a while
    steps = (proposal.up_at,) if up else (proposal.up_at, proposal.down_at)
    last = max((at for at in steps if at is not None), default=None)
    wait = profile.scale_up_cooldown_seconds if up else profile.scale_down_cooldown_seconds
    return 0.0 if last is None else last + wait - proposal.now


COOLDOWN = Policy(
    name="cooldown",
    about="Least time between two steps in one direction (`scale_up_cooldown_seconds`, "
    "`scale_down_cooldown_seconds`); scaling up through a breach is never held back.",
    before=before,
    step="cooldown",
)
