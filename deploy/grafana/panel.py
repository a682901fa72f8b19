"""What a panel needs to be said of it."""

from __future__ import annotations

from typing import NamedTuple

GOOD, POOR, BAD = "green", "orange", "red"
Steps = tuple[tuple[float | None, str], ...]


class Panel(NamedTuple):
    """One picture.

    Attributes:
        asks: (expression, what the line is called).
        width / height: a dashboard is 24 wide.
        steps: colours from a value upwards. exemplars: dots that lead to traces.
    """

    title: str
    asks: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    about: str = ""
    steps: Steps = ()
    exemplars: bool = False
    stacked: bool = False


class Row(NamedTuple):
    """A heading over panels."""

    title: str
    panels: tuple[Panel, ...]


POOL, HOST = 'pool=~"$pool"', 'host=~"$host"'
BUDGET_STEPS: Steps = ((None, BAD), (0, POOR), (0.25, GOOD))
NONE_STEPS: Steps = ((None, GOOD), (1, BAD))
FILL_STEPS: Steps = ((None, GOOD), (0.8, POOR), (0.95, BAD))
