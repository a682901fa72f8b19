"""The decider's events on the log: published, and read back by the next leader."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusError, Headers, Outgoing
from penstock.decider.core.conclude import Decision
from penstock.decider.core.notices import Notice
from penstock.decider.core.state import dump
from penstock.decider.decoding import read
from penstock.events.envelope import Event, encode, new_id
from penstock.events.scaling import SCALING_EVENTS, ScalingDecisionMade, SlaBreachPredicted
from penstock.events.subjects import Subjects

log = logging.getLogger("penstock.decider")

_AT_ONCE = 64


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The round of a decision; see `RoundDecided`.

    Attributes:
        epoch: of the leader.
        round: its number.
        through: sequence of the last snapshot that it used.
        now: the time it was computed for, POSIX seconds.
    """

    epoch: int
    round: int
    through: int
    now: float


def decision_event(
    decision: Decision, made: Made, source: str, id_: str | None = None
) -> ScalingDecisionMade:
    """The event of a decision; ``id_`` if it has one already."""
    return ScalingDecisionMade(
        id=id_ or new_id(),
        at=datetime.fromtimestamp(made.now, UTC),
        source=source,
        causation_id=decision.snapshot_ids[0] if decision.snapshot_ids else None,
        pool=decision.pool,
        current=decision.current,
        target=decision.target,
        reasons=decision.reasons,
        strategy=decision.strategy,
        sla_seconds=decision.sla_seconds,
        predicted_pickup_seconds=decision.predicted_pickup_seconds,
        snapshot_ids=decision.snapshot_ids,
        placement=decision.placement,
        state=dump(decision.state),
        epoch=made.epoch,
        round=made.round,
        through=made.through,
        advice=decision.advice,
    )


class Journal:
    """One process's events.

    Args:
        source: service and instance that speaks.
    """

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source

    def decisions(self, decisions: Iterable[Decision], made: Made) -> list[ScalingDecisionMade]:
        """The events of a round's decisions."""
        return [decision_event(decision, made, self._source) for decision in decisions]

    def notices(
        self, notices: Iterable[Notice], decision_ids: Mapping[str, str], now: float
    ) -> list[Event]:
        at = datetime.fromtimestamp(now, UTC)
        events = []
        for notice in notices:
            decision = decision_ids.get(notice.fields.get("pool", ""))
            fields = dict(notice.fields)
            if notice.event is SlaBreachPredicted:
                fields["decision_id"] = decision or ""
            events.append(notice.event(at=at, source=self._source, causation_id=decision, **fields))
        return events

    async def publish(
        self,
        events: Sequence[Event],
        headers: Mapping[str, Headers] | None = None,
        records: Sequence[Outgoing] = (),
    ) -> list[int | BusError]:
        """Appends events, pipelined. Refused events are logged, and no round waits for them.

        Args:
            headers: by event id.
            records: to be kept beside them; what became of each is the answer. They go first: a
                process that is killed in between leaves no decision without its round.
        """
        if not events and not records:
            return []
        by_id = headers or {}
        messages = [
            Outgoing(self._subjects.event(event), encode(event), by_id.get(event.id, {}))
            for event in events
        ]
        try:
            answers = await self._bus.append_many([*records, *messages])
        except BusError as error:
            log.warning("%d events are not on the log: %s", len(events), error)
            return [error] * len(records)
        failed = [answer for answer in answers if isinstance(answer, BusError)]
        if failed:
            log.warning(
                "%d of %d events are not on the log: %s", len(failed), len(answers), failed[0]
            )
        return answers[: len(records)]

    async def last_decisions(self, pools: Iterable[str]) -> dict[str, ScalingDecisionMade]:
        """Each pool's last decision, where the log still has one.

        Raises:
            BusUnavailable: no answer in time.
        """
        decisions = await bounded.gather(self._last_decision, list(pools), _AT_ONCE)
        return {decision.pool: decision for decision in decisions if decision is not None}

    async def _last_decision(self, pool: str) -> ScalingDecisionMade | None:
        subject = self._subjects.events("pool", pool, ScalingDecisionMade.__name__)
        stored = await self._bus.last(self._subjects.events_stream, subject)
        event = read(SCALING_EVENTS, stored) if stored else None
        return event if isinstance(event, ScalingDecisionMade) and event.pool == pool else None
