"""One decision recomputed: whether it is equal, what would have changed it, other settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from penstock.bus.saved_log import Entry
from penstock.decider.core import counterfactual
from penstock.decider.core.counterfactual import Change, Setting
from penstock.decider.core.decide import decide
from penstock.decider.program import program
from penstock.decider.publishing.adopting import Adopted
from penstock.decider.publishing.journal import Made, decision_event
from penstock.decider.replay.chain import Installed, Step
from penstock.decider.replay.recompute import (
    Gap,
    Recomputer,
    Recorded,
    decision_key,
    recorded_settings,
)
from penstock.decider.replay.verify import unlike
from penstock.decider.replay.whatif import Change as OtherSettings
from penstock.events.scaling import ScalingDecisionMade

Verdict = Literal["equal", "different", "other program", "not in the log"]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of recomputing a decision.

    Attributes:
        why: where it does not come out equal: what differs, or what is missing.
        changes: for each input, the least change that would have changed the number; nearest first.
            Empty where other settings were given.
        instead: what the same round would have decided for the pool under other settings; None
            where none were given, or the round is not in the log.
        estimated: fields of the pool's snapshot that were worked out, not read from its source.
    """

    recomputed: Verdict
    why: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    instead: ScalingDecisionMade | None = None
    estimated: tuple[str, ...] = ()


def explain(
    raw: bytes,
    entries: Sequence[Entry],
    installed: Installed,
    other: OtherSettings | None = None,
) -> Explanation:
    """A decision from what the log holds about its round.

    Args:
        raw: its event as stored: only these bytes can be proved equal.
        entries: of the log, from a checkpoint before the round.
        installed: strategies and policies.
        other: settings to decide the same round under, from the same state and measurements.

    Raises:
        ConfigError: no decider could work with the other settings.
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
                    explained = _explained(recorded, result, installed, other)
                    estimated = _estimated(recorded, result)
                    return msgspec.structs.replace(explained, estimated=estimated)
                why = result.why or why
    return Explanation(recomputed="not in the log", why=(why,))


def _explained(
    recorded: Recorded, step: Step, installed: Installed, other: OtherSettings | None
) -> Explanation:
    instead = None if other is None else _instead(recorded, step, installed, other)
    differences = unlike(step, recorded)
    if not differences:
        changes = [] if other is not None else _nearest(recorded, step)
        return Explanation(recomputed="equal", changes=tuple(changes), instead=instead)
    if step.round.program != program():
        why = (step.round.program, *differences)
        return Explanation(recomputed="other program", why=why, instead=instead)
    return Explanation(recomputed="different", why=differences, instead=instead)


def _estimated(recorded: Recorded, step: Step) -> tuple[str, ...]:
    measured = step.inputs.measured_pools.get(recorded.decision.pool)
    return () if measured is None else measured.snapshot.estimated


def _nearest(recorded: Recorded, step: Step) -> list[Change]:
    setting = Setting(step.before, step.inputs, step.round.at.timestamp())
    return counterfactual.nearest(setting, recorded.decision.pool)


def _instead(
    recorded: Recorded, step: Step, installed: Installed, other: OtherSettings
) -> ScalingDecisionMade | None:
    """The pool's decision of the same round; None where the round decides nothing for it."""
    adopted = Adopted(step.inputs.pools, step.inputs.rules, step.inputs.orders)
    changed = other.applied(adopted, installed)
    inputs = msgspec.structs.replace(step.inputs, pools=changed.pools, rules=changed.rules)
    now = step.round.at.timestamp()
    outcome = decide(step.before, inputs, now)
    pool = recorded.decision.pool
    decision = next((one for one in outcome.decisions if one.pool == pool), None)
    if decision is None:
        return None
    record = step.round
    made = Made(epoch=record.epoch, round=record.number, through=record.through, now=now)
    return decision_event(decision, made, recorded.decision.source, recorded.decision.id)
