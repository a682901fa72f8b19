"""Signals whose events leave the log, of workflows that may still wait for them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from penstock.bus import bounded
from penstock.bus.protocol import Bus, Outgoing
from penstock.events.envelope import encode
from penstock.events.subjects import Subjects
from penstock.events.workflow import (
    InboxCarried,
)
from penstock.jobs.job_log import JobLog
from penstock.jobs.workflows.coded import consumed_signals, inbox, memo
from penstock.jobs.workflows.coded.inbox import Signal
from penstock.orchestrator.retention.unfinished_workflows import may_go_on

log = logging.getLogger("penstock.orchestrator")

_READ_AT_ONCE = 20
_MOST_BYTES = 400_000
"""Of the values of one event; as base64 they are a third larger."""
_BESIDE_BYTES = 200


class InboxCarrier:
    """Stores what is unread, and the ids that were used, behind the window that leaves."""

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source
        self._log = JobLog(bus, subjects, source)

    async def carry(self, workflow_ids: Iterable[str], through: int) -> None:
        """Returns when all that counts of these inboxes is stored behind the window.

        An inbox has no compare-and-set: what is consumed meanwhile is known by its sequence, and
        what two orchestrators carry counts once.

        Args:
            through: sequence of the window's last message.

        Raises:
            BusError
        """
        await bounded.gather(
            lambda name: self._carry(name, through), sorted(workflow_ids), _READ_AT_ONCE
        )

    async def _carry(self, workflow_id: str, through: int) -> None:
        record = await self._log.read(workflow_id)
        if record is None or not may_go_on(record):
            return
        consumed = consumed_signals.of(record.workflow or memo.EMPTY)
        events, is_full = await self._log.inbox(workflow_id, consumed)
        if is_full and events[-1][0] <= through:
            log.error(
                "workflow %s: signals may be lost: its inbox is full, and those beyond leave the "
                "log",
                workflow_id,
            )
        kept = inbox.kept(events, consumed)
        leaving = [signal for signal in kept if signal.stored_at <= through]
        for part in _parts(leaving):
            event = InboxCarried(
                workflow_id=workflow_id,
                source=self._source,
                signals=tuple(map(inbox.carried, part)),
            )
            await self._bus.append(Outgoing(self._subjects.event(event), encode(event)))


def _parts(signals: Sequence[Signal]) -> Iterator[list[Signal]]:
    """In groups that fit one event each."""
    part: list[Signal] = []
    size = 0
    for signal in signals:
        length = len(signal.value) + _BESIDE_BYTES
        if part and size + length > _MOST_BYTES:
            yield part
            part, size = [], 0
        part.append(signal)
        size += length
    if part:
        yield part
