"""Late share against cost, one panel for each trace and promise."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.decider.simulator.studies.study import SimulationResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 3
_LEAST_SHARE = 1e-4
"""Shares below (none late, too) are drawn here: the axis is logarithmic."""
_TICKS = {1e-4: "none", 1e-3: "0.1 %", 1e-2: "1 %", 0.1: "10 %", 1.0: "all"}


def check_name(path: Path) -> None:
    """Raises ValueError where no picture can be written there."""
    from matplotlib.backend_bases import FigureCanvasBase  # noqa: PLC0415 - half a second to import

    endings = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.lower().removeprefix(".") not in endings:
        raise ValueError(f"found {path}, expected a name that ends in {', '.join(endings)}")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{path}: not allowed to write there")


def draw(rows: Sequence[SimulationResult], path: Path) -> None:
    """Writes a picture; the ending of its name says which kind (svg, png, pdf)."""
    from matplotlib import rc_context  # noqa: PLC0415 - half a second to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    panels = [list(group) for _, group in groupby(rows, key=_panel)]
    columns = min(_COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(5.4 * columns, 4.2 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    colours = {name: f"C{index % 10}" for index, name in enumerate(_names(rows))}
    for number, panel in enumerate(panels):
        _draw_panel(axes[number // columns][number % columns], panel, colours)
    for number in range(len(panels), lines * columns):
        axes[number // columns][number % columns].set_axis_off()
    with rc_context({"svg.fonttype": "none"}):  # letters stay letters: a tenth of the size
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(row: SimulationResult) -> tuple[str, float, float]:
    return row.trace, row.sla_seconds, row.spawn_seconds


def _names(rows: Sequence[SimulationResult]) -> list[str]:
    return list(dict.fromkeys(row.strategy for row in rows))


def _draw_panel(axis: Axes, rows: Sequence[SimulationResult], colours: dict[str, str]) -> None:
    first = rows[0]
    bound = first.bound_worker_seconds or 1.0
    for row in rows:
        at = row.worker_seconds / bound, max(row.late_share, _LEAST_SHARE)
        axis.scatter(*at, color=colours[row.strategy], s=26, zorder=3)
        axis.annotate(
            row.strategy, at, xytext=(3, 4), textcoords="offset points", fontsize=7, rotation=55
        )
    axis.plot(*_front(rows, bound), color="0.8", linewidth=1, drawstyle="steps-post")
    axis.axhline(1 - first.quantile, color="0.6", linewidth=0.8, linestyle="--")
    axis.axvline(1.0, color="0.6", linewidth=0.8, linestyle=":")
    axis.margins(x=0.15)  # room for the names
    axis.set(
        xscale="log",
        yscale="log",
        ylim=(_LEAST_SHARE / 1.5, 1.5),
        xlabel="worker-seconds, as a multiple of the least possible",
        ylabel="share of jobs that start late",
    )
    axis.set_yticks(*zip(*_TICKS.items(), strict=True))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("{x:g}")
    axis.tick_params(axis="x", which="both", labelsize=7)
    axis.set_title(
        f"{first.trace}: {first.quantile * 100:g} % within {first.sla_seconds:g} s, "
        f"{first.spawn_seconds:g} s to start a worker",
        fontsize=8,
    )


def _front(rows: Sequence[SimulationResult], bound: float) -> tuple[list[float], list[float]]:
    """The rows that no other row beats in both, from the cheapest on."""
    costs: list[float] = []
    shares: list[float] = []
    for row in sorted(rows, key=lambda row: (row.worker_seconds, row.late_share)):
        share = max(row.late_share, _LEAST_SHARE)
        if not shares or share < shares[-1]:
            costs.append(row.worker_seconds / bound)
            shares.append(share)
    return costs, shares
