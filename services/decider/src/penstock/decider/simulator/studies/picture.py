"""Late share and actions against cost: two panels for each trace, promise and start time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.decider.simulator.studies.study import SimulationResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Styles = Mapping[str, tuple[str, str]]
"""Colour and marker of each strategy."""
Height = Callable[[SimulationResult], float]
_MARKERS = "os^Dv"
_COLOURS = 10
_LEAST_SHARE = 1e-4
"""Shares below (none late, too) are drawn here: the axis is logarithmic."""
_TICKS = {1e-4: "none", 1e-3: "0.1 %", 1e-2: "1 %", 0.1: "10 %", 1.0: "all"}
_LETTER_POINTS = 7.0
_AROUND_DOT = ((1, 0), (1, 1), (1, -1), (-1, 0), (-1, 1), (-1, -1), (0, 1), (0, -1))
"""Where the label of a dot may stand, the best place first: to the right and above."""


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

    groups = [list(group) for _, group in groupby(rows, key=_group)]
    figure = Figure(figsize=(11.0, 4.2 * len(groups) + 0.9), layout="constrained")
    axes = figure.subplots(len(groups), 2, squeeze=False)
    names = list(dict.fromkeys(row.strategy for row in rows))
    styles = {name: _style(number) for number, name in enumerate(names)}
    for (late, actions), group in zip(axes, groups, strict=True):
        _draw_late(late, group, styles)
        _draw_actions(actions, group, styles)
    entries = {
        text: entry
        for axis in axes.flat
        for entry, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=6, fontsize=8)
    figure.draw_without_rendering()  # places depend on the layout
    figure.set_layout_engine("none")
    for (late, actions), group in zip(axes, groups, strict=True):
        _label(late, group, _late_share)
        _label(actions, group, _actions)
    with rc_context({"svg.fonttype": "none"}):  # letters stay letters: a tenth of the size
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _group(row: SimulationResult) -> tuple[str, float, float]:
    return row.trace, row.sla_seconds, row.spawn_seconds


def _style(number: int) -> tuple[str, str]:
    return f"C{number % _COLOURS}", _MARKERS[number // _COLOURS % len(_MARKERS)]


def _late_share(row: SimulationResult) -> float:
    return max(row.late_share, _LEAST_SHARE)


def _actions(row: SimulationResult) -> float:
    return row.actions_per_hour


def _cost(row: SimulationResult) -> float:
    """A multiple of the bound, or worker-seconds where the bound is not known."""
    return row.cost_ratio or row.worker_seconds


def _draw_late(axis: Axes, rows: Sequence[SimulationResult], styles: Styles) -> None:
    first = rows[0]
    _draw_dots(axis, rows, styles, _late_share)
    axis.plot(
        *_front(rows), color="0.8", linewidth=1, drawstyle="steps-post", label="not dominated"
    )
    axis.scatter([], [], color="none", edgecolors="0.4", label="promise not kept")
    allowed = 1 - first.quantile
    axis.axhline(allowed, color="0.6", linewidth=0.8, linestyle="--", label="late share allowed")
    axis.set(yscale="log", ylim=(_LEAST_SHARE / 4, 2.5), ylabel="share of jobs that start late")
    axis.set_yticks(*zip(*_TICKS.items(), strict=True))
    axis.set_title(
        f"{first.trace}: {first.quantile * 100:g} % within {first.sla_seconds:g} s, "
        f"{first.spawn_seconds:g} s to start a worker",
        fontsize=8,
    )


def _draw_actions(axis: Axes, rows: Sequence[SimulationResult], styles: Styles) -> None:
    _draw_dots(axis, rows, styles, _actions)
    most = max(row.actions_per_hour for row in rows)
    axis.set_yscale("symlog", linthresh=1.0)
    axis.set(ylim=(-0.7, max(3.0 * most, 2.0)), ylabel="actions an hour")
    axis.yaxis.set_major_formatter("{x:g}")


def _draw_dots(
    axis: Axes, rows: Sequence[SimulationResult], styles: Styles, height: Height
) -> None:
    for row in rows:
        colour, marker = styles[row.strategy]
        axis.scatter(
            _cost(row),
            height(row),
            color=colour if row.keeps_promise else "none",
            edgecolors=colour,
            marker=marker,
            s=26,
            zorder=3,
            label=row.strategy,
        )
    if rows[0].cost_ratio:
        axis.axvline(1.0, color="0.6", linewidth=0.8, linestyle=":", label="least possible cost")
    multiple = "worker-seconds, as a multiple of the least possible"
    axis.margins(x=0.15)  # room for the names
    axis.set(xscale="log", xlabel=multiple if rows[0].cost_ratio else "worker-seconds")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("{x:g}")
    axis.tick_params(axis="x", which="both", labelsize=7)


def _label(axis: Axes, rows: Sequence[SimulationResult], height: Height) -> None:
    """Writes each name beside its dot, where neither a dot nor another name is."""
    figure = axis.figure
    scale, to_fraction = figure.dpi / 72, figure.transFigure.inverted()
    dots = [axis.transData.transform((_cost(row), height(row))) for row in rows]
    taken = [_Box(x - 4 * scale, y - 4 * scale, x + 4 * scale, y + 4 * scale) for x, y in dots]
    for row, (x, y) in zip(rows, dots, strict=True):
        wide = 0.6 * _LETTER_POINTS * len(row.strategy) * scale
        high = 1.3 * _LETTER_POINTS * scale
        places = [
            _Box(
                left := x + right * (4 * scale + distance) - wide * (1 - right) / 2,
                low := y + up * (high / 2 + 2 * scale + distance) - high / 2,
                left + wide,
                low + high,
            )
            for distance in (0.0, 10 * scale, 20 * scale, 32 * scale)
            for right, up in _AROUND_DOT
        ]
        free = (
            box
            for box in places
            if not any(box.meets(other) for other in taken) and box.is_within(axis.bbox.extents)
        )
        box = next(free, places[0])
        taken.append(box)
        axis.annotate(
            row.strategy,
            (_cost(row), height(row)),
            xytext=tuple(to_fraction.transform(box.centre)),
            textcoords="figure fraction",  # pixels of an SVG are others
            fontsize=_LETTER_POINTS,
            ha="center",
            va="center",
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": "0.6", "shrinkA": 0},
        )


class _Box(NamedTuple):
    left: float
    low: float
    right: float
    high: float

    @property
    def centre(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.low + self.high) / 2

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.low < other.high
            and other.low < self.high
        )

    def is_within(self, extents: Sequence[float]) -> bool:
        left, low, right, high = extents
        return left <= self.left and low <= self.low and self.right <= right and self.high <= high


def _front(rows: Sequence[SimulationResult]) -> tuple[list[float], list[float]]:
    """The rows that no other row beats in both, from the cheapest on."""
    costs: list[float] = []
    shares: list[float] = []
    for row in sorted(rows, key=lambda row: (row.worker_seconds, row.late_share)):
        share = _late_share(row)
        if not shares or share < shares[-1]:
            costs.append(_cost(row))
            shares.append(share)
    return costs, shares
