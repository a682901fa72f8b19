"""Strategy `time_of_day`: what the traffic needs, and from some hours on never below a floor.

Shows settings with a rule of their own, and how to build on a strategy that ships.
"""

from __future__ import annotations

from datetime import datetime, time

from penstock.config.section import Count, Section
from penstock.decider.core.options import demand as demand_of
from penstock.decider.core.registry import BUILTIN
from penstock.decider.core.strategies.schedule import zone
from penstock.decider.core.strategy import Demand, StrategyInputs, ask


class Options(Section, frozen=True, kw_only=True):
    """`[pools.NAME.options.time_of_day]`.

    Attributes:
        time_zone: an IANA name.
        floors: least workers from a time of day on, until the next: ``{"07:30" = 5, "18:00" = 1}``.
    """

    time_zone: str = "UTC"
    floors: dict[str, Count] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        zone(self.time_zone)
        for begins in self.floors:
            try:
                time.fromisoformat(begins)
            except ValueError as error:
                raise ValueError(f"found floor {begins!r}, expected a time like 07:30") from error


class TimeOfDay:
    """See the module."""

    options = Options

    def demand(self, inputs: StrategyInputs) -> Demand:
        options, needed = inputs.options, demand_of("simple_rate", BUILTIN, inputs)
        begins, floor = _floor(options, inputs.now)
        why = f"{floor} at least from {begins} on; {needed.reasons[-1].text}"
        return ask("time_of_day", max(needed.workers, floor), why, {"floor_workers": floor})


def _floor(options: Options, now: float) -> tuple[str, int]:
    """The floor that began last; before the first of a day it is still yesterday's last."""
    clock = datetime.fromtimestamp(now, zone(options.time_zone)).time()
    floors = sorted(options.floors.items(), key=lambda entry: time.fromisoformat(entry[0]))
    begun = [entry for entry in floors if time.fromisoformat(entry[0]) <= clock]
    return (begun or floors or [("00:00", 0)])[-1]
