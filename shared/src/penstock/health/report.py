"""The report of health: a state with reasons for each component, the worst one, and durability."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec


class State(StrEnum):
    """From well to ill; the worst decides.

    ``warning``: works, and needs attention. ``degraded``: a part does not work. ``unhealthy``:
    jobs are not taken, or may be lost.
    """

    HEALTHY = "healthy"
    WARNING = "warning"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"

    @property
    def rank(self) -> int:
        return tuple(State).index(self)


def worst(states: Iterable[State]) -> State:
    return max(states, key=lambda state: state.rank, default=State.HEALTHY)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One component, with what was found and what to do; no reasons if healthy.

    Components are ``broker``, ``streams``, ``disk``, ``queues``, ``schedules``, ``hooks``,
    ``workers``, ``services``, ``settings``, ``spark`` and ``clock``.
    """

    component: str
    state: State
    reasons: tuple[str, ...] = ()


class Survival(msgspec.Struct, frozen=True, kw_only=True):
    """Whether acknowledged jobs survive something: ``yes``, ``no``, ``partly`` or ``unknown``."""

    answer: str
    because: str


class Durability(msgspec.Struct, frozen=True, kw_only=True):
    """The failures that an installation survives, by the broker's settings.

    Attributes:
        process: the broker is killed.
        power: its machine loses power.
        node: its disk is gone.
    """

    process: Survival
    power: Survival
    node: Survival


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole installation at an instant. ``durability`` is None without a broker to ask."""

    state: State
    at: datetime
    findings: tuple[Finding, ...]
    durability: Durability | None = None
