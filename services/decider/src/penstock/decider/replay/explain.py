"""One decision again: whether it comes out the same, and what would have changed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from penstock.decider.core import counterfactual
from penstock.decider.core.counterfactual import Change, Setting
from penstock.decider.program import program
from penstock.decider.replay.chain import Installed, Step
from penstock.decider.replay.entry import Entry
from penstock.decider.replay.recompute import Gap, Recomputer, Recorded, told
from penstock.decider.replay.settings import of_entries
from penstock.decider.replay.verify import again, differing
from penstock.events.envelope import encode
from penstock.events.scaling import ScalingDecisionMade

Verdict = Literal["equal", "different", "other program", "not in the log"]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What recomputing a decision tells about it.

    Attributes:
        why: where it does not come out equal: what differs, or what is missing.
        changes: for each input, the least change that would have changed the number; nearest first.
    """

    recomputed: Verdict
    why: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


def explain(
    made: ScalingDecisionMade, entries: Sequence[Entry], installed: Installed
) -> Explanation:
    """A decision from what the log holds about its round."""
    recomputer = Recomputer(of_entries(entries), installed)
    why = "its snapshots, or the record of its round, are not in the log"
    for entry in entries:
        for found in recomputer.take(entry):
            if not isinstance(found, Step | Gap):
                continue
            if (found.round.epoch, found.round.number) == (made.epoch, made.round):
                if isinstance(found, Step):
                    return _explained(made, found)
                why = found.why or why
    return Explanation(recomputed="not in the log", why=(why,))


def _explained(made: ScalingDecisionMade, step: Step) -> Explanation:
    raw = encode(made)
    other = again(step, Recorded(raw, told(raw)))
    setting = Setting(step.before, step.inputs, step.round.at.timestamp())
    if other == raw:
        changes = counterfactual.nearest(setting, made.pool)
        return Explanation(recomputed="equal", changes=tuple(changes))
    if step.round.program != program():
        return Explanation(recomputed="other program", why=(step.round.program,))
    if other is None:
        return Explanation(recomputed="different", why=("no such decision is made",))
    return Explanation(recomputed="different", why=tuple(differing(raw, other)))
