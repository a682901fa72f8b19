"""How the installation is, when that changes."""

from __future__ import annotations

from typing import ClassVar

from penstock.events.envelope import Codec, Event, Instant, Int64


class HealthChanged(Event, frozen=True, kw_only=True, tag=True):
    """A component's state is another than before.

    Attributes:
        component: ``broker``, ``streams``, ``disk``, ``queues``, ``workers``, ``services``,
            ``spark``, ``clock``, or ``installation`` for the worst of them.
        state: ``healthy``, ``warning``, ``degraded`` or ``unhealthy``.
        before: the state until now.
        reasons: what is wrong; empty when it is healthy again.
    """

    noun: ClassVar[str] = "health"
    key_field: ClassVar[str] = "component"

    component: str
    state: str
    before: str
    reasons: tuple[str, ...] = ()


class HistoryBegins(Event, frozen=True, kw_only=True, tag=True):
    """Earlier messages left the log, but for those of what is too large to be carried.

    Attributes:
        log: always ``log``.
        sequence: sequence of the first message that was not examined.
        since: when the last message before it was stored.
    """

    noun: ClassVar[str] = "health"
    key_field: ClassVar[str] = "log"

    log: str = "log"
    sequence: Int64
    since: Instant


HEALTH_EVENTS = Codec(HealthChanged, HistoryBegins)
