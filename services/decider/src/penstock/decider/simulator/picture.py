"""Late share against cost, one panel for each trace and promise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from penstock.decider.simulator.study import Row

_COLUMNS = 3
_LEAST_SHARE = 1e-4
"""Shares below (none late, too) are drawn here: the axis is logarithmic."""


def draw(rows: Sequence[Row], path: Path) -> None:
    """Writes a picture; the ending of its name says which kind (svg, png, pdf)."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - half a second to import

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
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(row: Row) -> tuple[str, float, float]:
    return row.trace, row.sla_seconds, row.spawn_seconds


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.strategy for row in rows))


def _draw_panel(axis: object, rows: Sequence[Row], colours: dict[str, str]) -> None:
    first = rows[0]
    bound = first.bound_worker_seconds or 1.0
    for row in rows:
        x, y = row.worker_seconds / bound, max(row.late_share, _LEAST_SHARE)
        axis.scatter([x], [y], color=colours[row.strategy], s=26)  # type: ignore[attr-defined]
        axis.annotate(  # type: ignore[attr-defined]
            row.strategy, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7
        )
    axis.axhline(1 - first.quantile, color="0.6", linewidth=0.8, linestyle="--")  # type: ignore[attr-defined]
    axis.axvline(1.0, color="0.6", linewidth=0.8, linestyle=":")  # type: ignore[attr-defined]
    axis.set(  # type: ignore[attr-defined]
        xscale="log",
        yscale="log",
        ylim=(_LEAST_SHARE / 1.5, 1.5),
        xlabel="worker-seconds, of what a clairvoyant needs",
        ylabel="share of jobs that start late",
        title=f"{first.trace}: {first.quantile * 100:g} % within {first.sla_seconds:g} s, "
        f"{first.spawn_seconds:g} s to start a worker",
    )
    axis.title.set_fontsize(8)  # type: ignore[attr-defined]
