"""Views that people save on the console: a page with its filter, under a name; on ``CONSOLE``."""

from __future__ import annotations

from typing import ClassVar

from penstock.events.envelope import Codec, Event


class ViewEvent(Event, frozen=True, kw_only=True):
    """One saved view.

    Attributes:
        by: who saved or removed it.
    """

    noun: ClassVar[str] = "view"
    key_field: ClassVar[str] = "view_id"

    view_id: str
    by: str = ""


class ViewSaved(ViewEvent, frozen=True, kw_only=True, tag=True):
    """The view is so from now on.

    Attributes:
        owner: who may change it.
        title: its name.
        path: of the page, with its query.
        is_shared: whether others see it, too.
    """

    owner: str
    title: str
    path: str
    is_shared: bool = False


class ViewRemoved(ViewEvent, frozen=True, kw_only=True, tag=True):
    """There is no such view any more."""


VIEW_EVENTS = Codec(ViewSaved, ViewRemoved)
"""What the stream ``CONSOLE`` holds of saved views."""
