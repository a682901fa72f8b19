"""How the installation is, when that changes."""

from __future__ import annotations

from typing import ClassVar

from penstock.events.envelope import Codec, Event


class HealthChanged(Event, frozen=True, kw_only=True, tag=True):
    """A component's state is another than before.

    Attributes:
        component: ``broker``, ``streams``, ``disk``, ``queues``, ``workers``, ``services``,
            ``spark``, ``clock``, or ``installation`` for the worst of them.
        state / before: ``healthy``, ``warning``, ``degraded`` or ``unhealthy``.
        reasons: what was found; empty when it is healthy again.
    """

    noun: ClassVar[str] = "health"
    key_field: ClassVar[str] = "component"

    component: str
    state: str
    before: str
    reasons: tuple[str, ...] = ()


HEALTH_EVENTS = Codec(HealthChanged)
