"""A decision told to people: its reasons, where it led, and what would have changed it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.bus.protocol import Bus
from penstock.cli.installed import is_importable
from penstock.events.scaling import Reason, ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.events.telling import headline
from penstock.views import wording

if TYPE_CHECKING:
    from penstock.decider.replay.explain import Explanation

MOST_CHANGES = 3


async def explain(
    bus: Bus, subjects: Subjects, made: ScalingDecisionMade, raw: bytes
) -> Explanation | None:
    """The decision recomputed; None where the decider is not installed.

    Args:
        raw: the event as stored.
    """
    if not is_importable("penstock.decider"):
        return None
    from penstock.cli.scaling import recorded_rounds  # noqa: PLC0415
    from penstock.decider.replay import explain, stretches  # noqa: PLC0415

    entries = await recorded_rounds.entries_of(bus, subjects, made)
    return explain.explain(raw, entries, stretches.installed())


def as_json(made: ScalingDecisionMade, found: Explanation | None) -> dict[str, Any]:
    """The event's own fields, with the sentences and the explanation beside them."""
    more = msgspec.to_builtins(found) if found is not None else {}
    return {**msgspec.to_builtins(made), "sentences": list(sentences(made, found)), **more}


def sentences(made: ScalingDecisionMade, found: Explanation | None = None) -> Iterator[str]:
    """A decision as its reasons tell it, one line a step."""
    yield f"{wording.clock(made.at)} {headline(made)}"
    for number, reason in enumerate(made.reasons, 1):
        yield f"  {number}. {reason.text}  ({reason.step}: {reason.rule} → {reason.workers})"
        if reason.values:
            yield f"     {_figures(reason)}"
    if made.predicted_pickup_seconds is not None:
        predicted = wording.seconds(made.predicted_pickup_seconds)
        promised = wording.seconds(made.sla_seconds)
        yield f"A job arriving then would start within {predicted}; promised: {promised}."
    if made.placement:
        placed = ", ".join(f"{count} on {host}" for host, count in made.placement.items())
        yield f"{'Advised' if made.advice else 'Placed'}: {placed}."
    yield f"Decision {made.id}, leader epoch {made.epoch}, by {made.source or 'unknown'}."
    if made.snapshot_ids:
        yield f"Made from snapshots {', '.join(made.snapshot_ids)} and those of the hosts."
    if found is not None:
        yield from _explained(found)


def _figures(reason: Reason) -> str:
    return ", ".join(f"{name} = {value}" for name, value in reason.values.items())


def _explained(found: Explanation) -> Iterator[str]:
    if found.recomputed == "equal":
        yield "Recomputed from the log: the same, bit for bit."
        if not found.changes:
            yield "No single input, changed alone, would have changed the number."
        for change in found.changes[:MOST_CHANGES]:
            yield f"{change.text[0].upper()}{change.text[1:]}."
    elif found.recomputed == "other program":
        program, *differences = found.why
        yield f"Not equal when recomputed: it was made by another program, {program}."
        yield from (f"  {each}" for each in differences)
    else:
        yield f"Recomputed from the log: {found.recomputed}."
        yield from (f"  {each}" for each in found.why)
