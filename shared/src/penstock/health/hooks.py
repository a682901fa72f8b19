"""Hooks whose notices are not delivered, by the positions that the orchestrator stores."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.config.masking import masked
from penstock.events.subjects import Subjects
from penstock.health.facts import HookFacts

MOST_ERROR = 300
"""Characters of an error that are stored."""
DROPPED_SECONDS = 3600.0
"""How long a dropped notice is reported: what was lost is not coming back."""

_Time = Annotated[float, msgspec.Meta(ge=0, le=250_000_000_000)]


class _Waiting(msgspec.Struct, frozen=True):
    since: _Time


class _Position(msgspec.Struct, frozen=True):
    """Part of the position that the orchestrator stores."""

    waiting: dict[int, _Waiting] = {}
    error: str = ""
    dropped_at: _Time = 0.0


async def failing_hooks(bus: Bus, settings: Settings) -> tuple[HookFacts, ...]:
    """Those hooks of the settings whose notices wait, or were dropped since the last delivery.

    Raises:
        BusError: the broker cannot be asked.
    """
    subjects = Subjects(settings.prefix)
    failing = []
    for name in settings.hooks:
        stored = await bus.last(subjects.state_stream, subjects.state("cursor", f"hook-{name}"))
        position = _read(stored.body) if stored else _Position()
        was_dropped = time.time() - position.dropped_at < DROPPED_SECONDS
        if position.waiting or was_dropped:
            hook = HookFacts(
                name=name,
                waiting=len(position.waiting),
                failing_since=min((one.since for one in position.waiting.values()), default=None),
                dropped_at=position.dropped_at if was_dropped else None,
                error=masked(position.error)[:MOST_ERROR],
            )
            failing.append(hook)
    return tuple(failing)


def _read(body: bytes) -> _Position:
    try:
        return msgspec.json.decode(body, type=_Position)
    except (ValueError, RecursionError):  # of another version
        return _Position()
