"""Listens to trained forecasts: the last one of each pool, and new ones as they are made."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from penstock.bus.protocol import Bus, Stored
from penstock.events.envelope import MalformedEvent
from penstock.events.forecasting import FORECAST_EVENTS, ForecastMade
from penstock.events.subjects import Subjects
from penstock.measuring.trained import Curve
from penstock.metrics.core.pool import PoolMeter
from penstock.runtime.poison_messages import skipping_poison

log = logging.getLogger("penstock.metrics")


class ForecastListener:
    """Hands forecasts to the meters of their pools. No message can stop it."""

    def __init__(self, bus: Bus, subjects: Subjects, meters: Mapping[str, PoolMeter]) -> None:
        self._bus, self._subjects, self._meters = bus, subjects, meters

    async def follow(self) -> None:
        """Without end."""
        subject = self._subjects.events("pool", "*", ForecastMade.__name__)
        async for stored in self._bus.follow(self._subjects.events_stream, [subject], "last"):
            with skipping_poison(stored.subject):
                self._take(stored)

    def _take(self, stored: Stored) -> None:
        try:
            made = FORECAST_EVENTS.decode(stored.body)
        except MalformedEvent as error:
            log.warning("%s is ignored: %s", stored.subject, error)
            return
        if isinstance(made, ForecastMade) and (meter := self._meters.get(made.pool)):
            meter.use_forecast(None if made.off else _curve(made))


def _curve(made: ForecastMade) -> Curve:
    """By the steady clock, on which meters live."""
    start = made.starts_at.timestamp() - time.time() + time.monotonic()
    return Curve(start, made.step_seconds, made.mean_per_second)
