"""The description of a dashboard's panel."""

from __future__ import annotations

from typing import NamedTuple

GOOD, POOR, BAD = "green", "orange", "red"
Steps = tuple[tuple[float | None, str], ...]


class Panel(NamedTuple):
    """One picture.

    Attributes:
        title: above the picture.
        asks: expressions, each with the name of its line.
        unit: of the values, as Grafana names it.
        kind: the type of the panel.
        width: a dashboard is 24 wide.
        height: in the same units.
        about: a sentence that explains the picture.
        steps: colours from a value upwards.
        exemplars: dots that lead to traces.
        stacked: lines are added up.
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
