"""All batches or graphs of the event log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Literal, Protocol, TypeVar

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.events.subjects import Subjects


class _Workflow(Protocol):
    @property
    def state(self) -> str: ...


Record = TypeVar("Record", bound=_Workflow)


async def newest(
    bus: Bus,
    settings: Settings,
    noun: Literal["batch", "graph"],
    show: Callable[[str], Awaitable[Record]],
    moment: Callable[[Record], datetime],
) -> list[Record]:
    """Reads all batches or graphs of the event log.

    Args:
        bus: a connection.
        settings: of the installation.
        noun: which of the two.
        show: reads one by its id.
        moment: the time to sort by, the latest first.

    Raises:
        BusError: the log cannot be read.
    """
    subjects = Subjects(settings.prefix)
    counted = await bus.count(subjects.events_stream, subjects.events(noun))
    ids = dict.fromkeys(subject.split(".")[-2] for subject in counted)
    return sorted([await show(workflow_id) for workflow_id in ids], key=moment, reverse=True)
