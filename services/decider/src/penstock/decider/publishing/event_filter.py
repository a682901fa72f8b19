"""Selects the decisions to publish: each one with news, the others at an interval."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from penstock.decider.core.conclude import Decision
from penstock.events.scaling import ScalingDecisionMade

D = TypeVar("D", Decision, ScalingDecisionMade)

_Content = tuple[object, ...]


class EventFilter:
    """Remembers the last published decision of each pool.

    Args:
        repeat_seconds: a decision like the last one is published again after so long. A hundred
            quiet pools, decided each second, would else fill the log with 10 GB a day.
    """

    def __init__(self, repeat_seconds: float) -> None:
        self._repeat_seconds = repeat_seconds
        self._published: dict[str, tuple[float, _Content]] = {}

    def pick(self, decisions: Sequence[D], urgent: Collection[str], now: float) -> list[D]:
        """The decisions to publish.

        Args:
            decisions: of a round.
            urgent: pools with a notice, which names its decision.
            now: POSIX seconds.
        """
        return [
            decision
            for decision in decisions
            if self._is_news(decision, decision.pool in urgent, now)
        ]

    def _is_news(self, decision: Decision | ScalingDecisionMade, urgent: bool, now: float) -> bool:
        rules = tuple((reason.step, reason.rule, reason.workers) for reason in decision.reasons)
        content = (decision.target, tuple(sorted(decision.placement.items())), rules)
        at, last = self._published.get(decision.pool, (0.0, ()))
        # an advised change is never made: it would be news in each round
        changes = decision.target != decision.current and not decision.advice
        if not (urgent or changes or content != last or not 0 <= now - at < self._repeat_seconds):
            return False
        self._published[decision.pool] = (now, content)
        return True
