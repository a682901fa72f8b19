"""Batches and graphs as the event log holds them, for the commands that list them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Literal, Protocol, TypeVar

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.events.subjects import Subjects


class _Whole(Protocol):
    @property
    def state(self) -> str: ...


Record = TypeVar("Record", bound=_Whole)


async def newest(
    bus: Bus,
    settings: Settings,
    noun: Literal["batch", "graph"],
    show: Callable[[str], Awaitable[Record]],
    moment: Callable[[Record], datetime],
) -> list[Record]:
    """All that the log knows, those of the latest ``moment`` first. Raises BusError."""
    subjects = Subjects(settings.prefix)
    counted = await bus.count(subjects.events_stream, subjects.events(noun))
    ids = dict.fromkeys(subject.split(".")[-2] for subject in counted)
    return sorted([await show(each) for each in ids], key=moment, reverse=True)
