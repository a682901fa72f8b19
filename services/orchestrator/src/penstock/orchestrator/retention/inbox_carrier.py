"""Signals whose events leave the log, of workflows that may still wait for them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from penstock.bus import bounded
from penstock.bus.protocol import Bus, Outgoing
from penstock.events.envelope import encode
from penstock.events.subjects import Subjects
from penstock.events.workflow import (
    INBOX_EVENTS,
    InboxCarried,
)
from penstock.jobs.event_store import event_log
from penstock.jobs.job_log import JobLog
from penstock.jobs.workflows.coded import inbox, memo
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
        subject = self._subjects.events("workflow", workflow_id)
        events = await event_log.read_subject(
            self._bus, self._subjects.events_stream, subject, INBOX_EVENTS
        )
        kept = inbox.kept(events, memo.consumed_signals(record.workflow or memo.EMPTY))
        if kept.refused:
            log.error(
                "workflow %s: %d signals are lost: its inbox holds more unread ones than it may",
                workflow_id,
                kept.refused,
            )
        leaving = [signal for signal in kept.signals if signal.stored_at <= through]
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
