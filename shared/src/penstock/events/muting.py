"""Functions that people mute on the console: their jobs run as before; on ``CONSOLE``."""

from __future__ import annotations

from typing import ClassVar

from penstock.events.envelope import Codec, Event


class MuteEvent(Event, frozen=True, kw_only=True):
    """One function.

    Attributes:
        mute_id: made of the function's name, which cannot be a part of a subject.
        function: registered name.
        by: who muted it, or ended that.
    """

    noun: ClassVar[str] = "mute"
    key_field: ClassVar[str] = "mute_id"

    mute_id: str
    function: str
    by: str = ""


class FunctionMuted(MuteEvent, frozen=True, kw_only=True, tag=True):
    """Its failed jobs are counted, and not listed among failures, what needs attention and alerts.

    Attributes:
        reason: why.
    """

    reason: str = ""


class FunctionUnmuted(MuteEvent, frozen=True, kw_only=True, tag=True):
    """Its failed jobs are listed again."""


MUTE_EVENTS = Codec(FunctionMuted, FunctionUnmuted)
"""What the stream ``CONSOLE`` holds of muted functions."""
