"""A decision as sentences: its reasons, its effect, and the inputs that would have changed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.bus.protocol import Bus
from penstock.cli.errors import Failed
from penstock.cli.installed import is_importable
from penstock.events.scaling import Reason, ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.events.telling import headline
from penstock.views import wording

if TYPE_CHECKING:
    from penstock.decider.replay.explain import Explanation

MOST_CHANGES = 3


async def explain(
    bus: Bus,
    subjects: Subjects,
    made: ScalingDecisionMade,
    raw: bytes,
    other: Mapping[str, Any] | None = None,
) -> Explanation | None:
    """Recomputes a decision from the log.

    Args:
        bus: a connection.
        subjects: of the installation.
        made: the decision.
        raw: the event as it is stored.
        other: settings by their names, to decide the same round under.

    Returns:
        None where the decider is not installed.

    Raises:
        ConfigError: no decider could work with the other settings.
        Failed: there are such settings, and the decider is not installed.
    """
    if not is_importable("penstock.decider"):
        if other:
            raise Failed("this needs the package penstock-decider; install it")
        return None
    from penstock.cli.scaling import recorded_rounds  # noqa: PLC0415
    from penstock.decider.replay import explain, stretches, whatif  # noqa: PLC0415

    change = whatif.change(other) if other else None
    entries = await recorded_rounds.entries_of(bus, subjects, made)
    return explain.explain(raw, entries, stretches.installed(), change)


def as_json(made: ScalingDecisionMade, explanation: Explanation | None) -> dict[str, Any]:
    """The event's own fields, with the sentences and the explanation beside them."""
    fields: dict[str, Any] = msgspec.to_builtins(made) | {
        "sentences": list(sentences(made, explanation))
    }
    return fields if explanation is None else fields | msgspec.to_builtins(explanation)


def sentences(made: ScalingDecisionMade, explanation: Explanation | None = None) -> Iterator[str]:
    """A decision as lines of text, one for each reason; with an explanation, more after them."""
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
    if explanation is not None and explanation.estimated:
        names = ", ".join(name.replace("_", " ") for name in explanation.estimated)
        yield f"Estimated there, not read from the pool's source: {names}."
    if explanation is not None:
        yield from _recomputed(explanation)


def _figures(reason: Reason) -> str:
    return ", ".join(f"{name} = {value}" for name, value in reason.values.items())


def _recomputed(explanation: Explanation) -> Iterator[str]:
    if explanation.recomputed == "equal":
        yield "Recomputed from the log: the same, bit for bit."
        if not explanation.changes and explanation.instead is None:
            yield "No single input, changed alone, would have changed the number."
        for change in explanation.changes[:MOST_CHANGES]:
            yield f"{change.text[0].upper()}{change.text[1:]}."
    elif explanation.recomputed == "other program":
        program, *differences = explanation.why
        yield f"Not equal when recomputed: it was made by another program, {program}."
        yield from (f"  {difference}" for difference in differences)
    else:
        yield f"Recomputed from the log: {explanation.recomputed}."
        yield from (f"  {sentence}" for sentence in explanation.why)
    if (instead := explanation.instead) is not None:
        yield f"Under the other settings: {headline(instead)}"
        for number, reason in enumerate(instead.reasons, 1):
            yield f"  {number}. {reason.text}  ({reason.step}: {reason.rule} → {reason.workers})"
