"""Why a decision did not name another number: the steps that stood in its way. Pure."""

from __future__ import annotations

import msgspec

from penstock.events.scaling import Reason, ScalingDecisionMade


class WhyNot(msgspec.Struct, frozen=True, kw_only=True):
    """Why not this number of workers.

    Attributes:
        workers: the other number.
        target: that was decided.
        text: the answer in one sentence.
        against: the steps that would have to speak otherwise, in the order of the decision.
    """

    workers: int
    target: int
    text: str
    against: tuple[Reason, ...]


def why_not(made: ScalingDecisionMade, workers: int) -> WhyNot:
    """Compares another number with the chain of reasons.

    Args:
        made: the decision.
        workers: the other number.
    """
    if workers == made.target:
        text = f"{workers} is what was decided."
        return WhyNot(workers=workers, target=made.target, text=text, against=())
    wants_more = workers > made.target
    against = tuple(
        reason
        for number, reason in enumerate(made.reasons)
        if _leads_away(made.reasons, number, workers, wants_more=wants_more)
    )
    if not against:
        text = f"No step reached {workers}: the chain of reasons ends at {made.target}."
    else:
        direction = "fewer" if wants_more else "more"
        names = ", then ".join(f"{reason.rule} ({reason.step})" for reason in against)
        text = f"Not {workers}, as {names} asked for {direction}: {against[0].text}"
    return WhyNot(workers=workers, target=made.target, text=text, against=against)


def _leads_away(
    reasons: tuple[Reason, ...], number: int, workers: int, *, wants_more: bool
) -> bool:
    """Whether the step crosses the number away from it, or as the first one never reaches it."""
    after = reasons[number].workers
    falls_short = after < workers if wants_more else after > workers
    if number == 0:
        return falls_short
    before = reasons[number - 1].workers
    reached = before >= workers if wants_more else before <= workers
    return falls_short and reached
