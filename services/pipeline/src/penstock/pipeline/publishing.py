"""Publishes forecasts on the event log, from where the metrics service reads them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.bus.protocol import Bus, BusError, Outgoing
from penstock.events.envelope import encode
from penstock.events.forecasting import ForecastMade
from penstock.events.subjects import Subjects

_CHUNK = 100
"""Events in flight at a time: a day of minutes takes about 40 kB each."""


class NotPublished(RuntimeError):
    """The broker refused some of the forecasts; the others are stored."""


async def publish(bus: Bus, prefix: str, forecasts: Sequence[ForecastMade]) -> None:
    """Appends the forecasts to the event log.

    Args:
        bus: a connection with the key of the role ``pipeline``, where the broker has keys.
        prefix: of the installation's subjects.
        forecasts: one of each pool.

    Raises:
        NotPublished: how many, and the first error.
    """
    subjects = Subjects(prefix)
    errors: list[BusError] = []
    for start in range(0, len(forecasts), _CHUNK):
        chunk = [
            Outgoing(subjects.event(event), encode(event))
            for event in forecasts[start : start + _CHUNK]
        ]
        answers = await bus.append_many(chunk)
        errors += [answer for answer in answers if isinstance(answer, BusError)]
    if errors:
        raise NotPublished(
            f"{len(errors)} of {len(forecasts)} forecasts were not published: {errors[0]}"
        )
