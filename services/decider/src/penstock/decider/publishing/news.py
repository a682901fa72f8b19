"""Which decisions are worth an event: each one that says something new, the others now and then."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from penstock.decider.core.conclude import Decision
from penstock.events.scaling import ScalingDecisionMade

D = TypeVar("D", Decision, ScalingDecisionMade)

_Said = tuple[object, ...]


class News:
    """Remembers what was told of each pool.

    Args:
        repeat_seconds: what says nothing new is told again after this long. A hundred quiet pools,
            looked at each second, would else fill the log with 10 GB a day.
    """

    def __init__(self, repeat_seconds: float) -> None:
        self._repeat_seconds = repeat_seconds
        self._told: dict[str, tuple[float, _Said]] = {}

    def pick(self, decisions: Sequence[D], urgent: Collection[str], now: float) -> list[D]:
        """Those to be told.

        Args:
            urgent: pools of which something else is told as well, which names its decision.
            now: POSIX seconds.
        """
        return [each for each in decisions if self._is_news(each, each.pool in urgent, now)]

    def _is_news(self, decision: Decision | ScalingDecisionMade, urgent: bool, now: float) -> bool:
        rules = tuple((reason.step, reason.rule, reason.workers) for reason in decision.reasons)
        says = (decision.target, tuple(sorted(decision.placement.items())), rules)
        at, said = self._told.get(decision.pool, (0.0, ()))
        changes = decision.target != decision.current and not decision.advice
        if not (urgent or changes or says != said or not 0 <= now - at < self._repeat_seconds):
            return False
        self._told[decision.pool] = (now, says)
        return True
