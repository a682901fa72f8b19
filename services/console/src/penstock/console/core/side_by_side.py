"""Two chains of reasons beside each other: a decision, and the one under other settings. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import msgspec

from penstock.events.scaling import Reason


class ReasonPair(msgspec.Struct, frozen=True, kw_only=True):
    """One step in both chains.

    Attributes:
        made: of the decision that was made; None where it has no such step.
        instead: of the other; None where it has no such step.
    """

    made: Reason | None
    instead: Reason | None

    @property
    def reason(self) -> Reason:
        """Whichever is there, for the names of step and rule."""
        reason = self.made or self.instead
        assert reason is not None
        return reason

    @property
    def is_same(self) -> bool:
        """Whether both have this step, with the same number."""
        return (
            self.made is not None
            and self.instead is not None
            and self.made.workers == self.instead.workers
        )


def side_by_side(made: Sequence[Reason], instead: Sequence[Reason]) -> list[ReasonPair]:
    """Both chains in their order, steps of the same name and rule in one row.

    Args:
        made: reasons of the decision that was made.
        instead: those under other settings.
    """
    names = [(reason.step, reason.rule) for reason in made]
    others = [(reason.step, reason.rule) for reason in instead]
    pairs: list[ReasonPair] = []
    matcher = SequenceMatcher(None, names, others, autojunk=False)
    for kind, first, last, other_first, other_last in matcher.get_opcodes():
        if kind == "equal":
            rows = zip(made[first:last], instead[other_first:other_last], strict=True)
            pairs += [ReasonPair(made=one, instead=other) for one, other in rows]
        else:
            pairs += [ReasonPair(made=one, instead=None) for one in made[first:last]]
            rest = instead[other_first:other_last]
            pairs += [ReasonPair(made=None, instead=other) for other in rest]
    return pairs
