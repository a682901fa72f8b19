"""One decision recomputed: whether it is equal, and what would have changed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from penstock.bus.saved_log import Entry
from penstock.decider.core import counterfactual
from penstock.decider.core.counterfactual import Change, Setting
from penstock.decider.program import program
from penstock.decider.replay.chain import Installed, Step
from penstock.decider.replay.recompute import (
    Gap,
    Recomputer,
    Recorded,
    decision_key,
    recorded_settings,
)
from penstock.decider.replay.verify import unlike

Verdict = Literal["equal", "different", "other program", "not in the log"]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of recomputing a decision.

    Attributes:
        why: where it does not come out equal: what differs, or what is missing.
        changes: for each input, the least change that would have changed the number; nearest first.
    """

    recomputed: Verdict
    why: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


def explain(raw: bytes, entries: Sequence[Entry], installed: Installed) -> Explanation:
    """A decision from what the log holds about its round.

    Args:
        raw: its event as stored: only these bytes can be proved equal.
    """
    recorded = Recorded(raw, decision_key(raw))
    key = (recorded.decision.epoch, recorded.decision.round)
    recomputer = Recomputer(recorded_settings(entries), installed)
    why = "its snapshots, or the record of its round, are not in the log"
    for entry in entries:
        for result in recomputer.take(entry):
            if not isinstance(result, Step | Gap):
                continue
            if (result.round.epoch, result.round.number) == key:
                if isinstance(result, Step):
                    return _explained(recorded, result)
                why = result.why or why
    return Explanation(recomputed="not in the log", why=(why,))


def _explained(recorded: Recorded, step: Step) -> Explanation:
    differences = unlike(step, recorded)
    if not differences:
        setting = Setting(step.before, step.inputs, step.round.at.timestamp())
        changes = counterfactual.nearest(setting, recorded.decision.pool)
        return Explanation(recomputed="equal", changes=tuple(changes))
    if step.round.program != program():
        return Explanation(recomputed="other program", why=(step.round.program, *differences))
    return Explanation(recomputed="different", why=differences)
