"""Late share against worker-hours under the tried settings, a panel for each pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.decider.simulator.studies.tuning import AS_IT_IS, Outlook

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PANELS = 12
_COLUMNS = 3
_LEAST_SHARE = 1e-4
"""Shares below (none late, too) are drawn here: the axis is logarithmic."""
_LABEL: Any = {"textcoords": "offset points", "fontsize": 7}
_TICKS = {1e-4: "none", 1e-3: "0.1 %", 1e-2: "1 %", 0.1: "10 %", 1.0: "all"}


def draw(rows: Sequence[Outlook], allowed: dict[str, float], path: Path) -> None:
    """Writes a picture of the pools that cost most; its name's ending says which kind.

    Args:
        allowed: share of jobs that may be late, by pool.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - half a second to import

    panels = [list(group) for _, group in groupby(rows, key=lambda row: row.pool)]
    panels = sorted(panels, key=lambda panel: -panel[-1].worker_hours)[:MOST_PANELS]
    columns = min(_COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(5.2 * columns, 4.0 * lines), layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axis, panel in zip(axes, panels, strict=False):
        _draw_panel(axis, panel, allowed[panel[0].pool])
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw_panel(axis: Axes, rows: Sequence[Outlook], allowed: float) -> None:
    for row in rows:
        now = row.setting == AS_IT_IS
        at = row.worker_hours, max(row.late_share, _LEAST_SHARE)
        axis.scatter(*at, color="C0", s=70 if row.best else 22, zorder=3)
        if now:
            axis.scatter(*at, facecolors="none", edgecolors="C1", s=150, linewidths=1.5, zorder=4)
            axis.annotate(row.setting, at, (-6, -17), color="C1", **_LABEL)
        if row.best:
            axis.annotate(f"best: {row.setting}", at, (-6, 10), color="C0", **_LABEL)
    front = [row for row in rows if row.frontier]
    shares = [max(row.late_share, _LEAST_SHARE) for row in front]
    costs = [row.worker_hours for row in front]
    axis.plot(costs, shares, color="0.75", linewidth=1, drawstyle="steps-post")
    axis.axhline(allowed, color="C3", linewidth=0.8, linestyle="--")
    axis.set(
        yscale="log",
        ylim=(_LEAST_SHARE / 4, 1.5),
        xlabel="worker-hours a day",
        ylabel="share of jobs that start late",
    )
    axis.set_xlim(0, 1.15 * max(row.worker_hours for row in rows) + 1e-9)
    axis.set_yticks(*zip(*_TICKS.items(), strict=True))
    axis.set_title(f"{rows[0].pool}: {rows[0].jobs} jobs of {rows[0].days} days", fontsize=9)
