"""Views that people have saved, read from the stream ``CONSOLE`` whenever they are asked for."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.bus.protocol import Bus, Expect, Outgoing
from penstock.events.envelope import MalformedEvent, encode
from penstock.events.saved_view import VIEW_EVENTS, ViewEvent, ViewRemoved, ViewSaved
from penstock.events.subjects import Subjects

_PAGE = 1_000


class SavedView(msgspec.Struct, frozen=True, kw_only=True):
    """A page with its filter, under a name.

    Attributes:
        version: changes with each change; what `If-Match` is compared with.
    """

    id: str
    owner: str
    title: str
    path: str
    is_shared: bool
    saved_at: datetime
    version: int


async def saved_views(bus: Bus, subjects: Subjects) -> dict[str, SavedView]:
    """All views, by id, those that were saved last at the end. Raises BusError."""
    views: dict[str, SavedView] = {}
    stream, pattern, start = subjects.console_stream, subjects.console(ViewEvent.noun), 1
    while page := await bus.history(stream, pattern, _PAGE, start):
        for message in page:
            try:
                event = VIEW_EVENTS.decode(message.body)
            except MalformedEvent:
                continue
            if isinstance(event, ViewRemoved):
                views.pop(event.view_id, None)
            elif isinstance(event, ViewSaved):
                views.pop(event.view_id, None)
                views[event.view_id] = SavedView(
                    id=event.view_id,
                    owner=event.owner,
                    title=event.title,
                    path=event.path,
                    is_shared=event.is_shared,
                    saved_at=event.at,
                    version=message.sequence,
                )
        start = page[-1].sequence + 1
    return views


async def store(bus: Bus, subjects: Subjects, event: ViewEvent, version: int) -> int:
    """Stores a change of a view; returns its version.

    Args:
        version: that is changed; 0 for a new view.

    Raises:
        WrongSequence: it was changed meanwhile.
    """
    every = subjects.console(event.noun, event.view_id)
    subject = subjects.console_event(event)
    return await bus.append(Outgoing(subject, encode(event), {}, Expect(version, every)))
