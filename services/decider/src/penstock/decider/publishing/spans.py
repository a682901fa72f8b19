"""The decider's spans in the trace of a scaling: `decide` below the snapshot, then `command`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from penstock import telemetry
from penstock.bus.protocol import Headers
from penstock.events.scaling import ScalingDecisionMade, WorkersScaled
from penstock.telemetry import Span, SpanKind, names


class DecisionSpans:
    """The spans of one leader; does nothing while tracing is off."""

    def __init__(self) -> None:
        self._decided: dict[str, Headers] = {}
        """Context of each pool's last decision, for a command that is sent again later."""

    @contextmanager
    def decisions(
        self,
        decisions: Sequence[ScalingDecisionMade],
        snapshots: Mapping[str, Headers],
        hosts: Iterable[str],
        began_at: float,
    ) -> Iterator[dict[str, Headers]]:
        """Headers for each decision's message, by decision id.

        Args:
            snapshots: headers by snapshot id.
            hosts: ids of the hosts' snapshots, inputs of each decision.
            began_at: when the round began, POSIX seconds of the local clock.
        """
        if not telemetry.enabled():
            yield {}
            return
        shared = [snapshots[id_] for id_ in hosts if id_ in snapshots]
        opened = {event.id: _decide(event, snapshots, shared, began_at) for event in decisions}
        headers = {id_: telemetry.inject(span=span) for id_, span in opened.items()}
        self._decided.update({event.pool: headers[event.id] for event in decisions})
        try:
            yield {**headers}
        finally:
            for span in opened.values():
                span.end()

    @contextmanager
    def commands(
        self,
        commands: Sequence[WorkersScaled],
        changed_pools: Callable[[WorkersScaled], Sequence[str]],
    ) -> Iterator[dict[str, Headers]]:
        """Headers for each command, by host."""
        if not telemetry.enabled():
            yield {}
            return
        opened = {
            command.host: self._command(command, changed_pools(command)) for command in commands
        }
        try:
            yield {host: telemetry.inject(span=span) for host, span in opened.items()}
        finally:
            for span in opened.values():
                span.end()

    def _command(self, command: WorkersScaled, pools: Sequence[str]) -> Span:
        contexts = [self._decided[pool] for pool in pools if pool in self._decided]
        return telemetry.start(
            names.command(command.host),
            parent=contexts[0] if contexts else {},
            kind=SpanKind.PRODUCER,
            links=telemetry.links(*contexts),
            attributes={
                names.MESSAGING_SYSTEM: names.NATS,
                names.MESSAGING_OPERATION_NAME: "command",
                names.MESSAGING_OPERATION_TYPE: names.SEND,
                names.MESSAGING_DESTINATION: command.host,
                names.MESSAGING_MESSAGE_ID: command.id,
                names.MESSAGING_CLIENT_ID: command.source,
                names.HOST: command.host,
                names.EPOCH: command.epoch,
                names.VERSION: command.version,
            },
        )


def _decide(
    decision: ScalingDecisionMade,
    snapshots: Mapping[str, Headers],
    shared: Sequence[Headers],
    began_at: float,
) -> Span:
    own = [snapshots[id_] for id_ in decision.snapshot_ids if id_ in snapshots]
    contexts = [*own, *shared]
    return telemetry.start(
        names.decide(decision.pool),
        parent=contexts[0] if contexts else {},
        kind=SpanKind.CONSUMER,
        links=telemetry.links(*contexts),
        started_at=began_at,
        attributes={
            names.MESSAGING_SYSTEM: names.NATS,
            names.MESSAGING_OPERATION_NAME: "decide",
            names.MESSAGING_OPERATION_TYPE: names.PROCESS,
            names.MESSAGING_DESTINATION: decision.pool,
            names.MESSAGING_CLIENT_ID: decision.source,
            names.POOL: decision.pool,
            names.DECISION: decision.id,
            names.CURRENT_WORKERS: decision.current,
            names.TARGET_WORKERS: decision.target,
            names.REASON: decision.reasons[-1].text,
            names.STRATEGY: decision.strategy,
        },
    )
