"""The picture: load, pickup times against the promise, workers planned and ready, and the cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from examples.demonstration.figures import Figures
from examples.demonstration.plotted import Plotted
from examples.demonstration.recording import Step
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#F0E442")
"""Okabe & Ito's palette, distinguishable with every kind of colour vision."""
LATE, INK, FAINT, GRID = "#D55E00", "#222222", "#777777", "#E4E4E4"
_LEAST_PICKUP_SECONDS = 0.001
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": "#BBBBBB",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "svg.hashsalt": "penstock",
}


def save(plotted: Plotted, *files: Path) -> None:
    """Writes the picture; the format goes by each file's name."""
    with mpl.rc_context(_STYLE):
        figure = draw(plotted)
        for file in files:
            dateless = {"Date": None} if file.suffix == ".svg" else {}
            figure.savefig(file, metadata=dateless)


def draw(plotted: Plotted) -> Figure:
    figure = Figure(figsize=(12, 5.1 + 1.55 * len(plotted.pools)), dpi=110)
    figure.text(0.072, 0.972, plotted.title, size=16, weight="bold", va="top")
    figure.text(0.072, 0.938, plotted.subtitle, size=10, color=FAINT, va="top")
    rows = figure.add_gridspec(
        2 + len(plotted.pools),
        2,
        width_ratios=(5.2, 1),
        height_ratios=(0.85, 1.9, *(1.0 for _ in plotted.pools)),
        left=0.072,
        right=0.975,
        top=0.885,
        bottom=0.062,
        hspace=0.36,
        wspace=0.08,
    )
    left: list[Axes] = []
    for row in range(2 + len(plotted.pools)):
        left.append(figure.add_subplot(rows[row, 0], sharex=left[0] if left else None))
    _load(left[0], plotted)
    _pickups(left[1], plotted)
    _legend(figure.add_subplot(rows[0:2, 1]), plotted)
    most = max((pool.fixed_worker_seconds for pool in plotted.pools), default=1.0)
    for index, pool in enumerate(plotted.pools):
        _workers(left[2 + index], plotted, pool, COLOURS[index])
        _cost(figure.add_subplot(rows[2 + index, 1]), pool, COLOURS[index], most)
    _time_axis(left, plotted)
    _mark_kills(left, plotted)
    return figure


def _load(axes: Axes, plotted: Plotted) -> None:
    edges = range(int(plotted.seconds) + 2)
    dispatched = [
        [story.dispatched_at - plotted.begins for story in plotted.recording.jobs_of(pool.pool)]
        for pool in plotted.pools
    ]
    axes.hist(
        dispatched,
        bins=list(edges),
        stacked=True,
        color=COLOURS[: len(dispatched)],
        histtype="stepfilled",
    )
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    _heading(axes, "Load: jobs dispatched", "jobs/s")


def _pickups(axes: Axes, plotted: Plotted) -> None:
    for index, pool in enumerate(plotted.pools):
        waits = [
            (story.dispatched_at - plotted.begins, pickup)
            for story in plotted.recording.jobs_of(pool.pool)
            if (pickup := story.pickup_seconds) is not None
        ]
        x = [at for at, _ in waits]
        y = [max(pickup, _LEAST_PICKUP_SECONDS) for _, pickup in waits]
        axes.scatter(x, y, s=13, color=COLOURS[index], alpha=0.65, linewidths=0)
        late = [(at, pickup) for at, pickup in waits if pickup > pool.sla_seconds]
        axes.scatter(
            [at for at, _ in late],
            [pickup for _, pickup in late],
            s=52,
            facecolors="none",
            edgecolors=LATE,
        )
        axes.axhline(pool.sla_seconds, color=COLOURS[index], linewidth=1.4, linestyle=(0, (5, 2)))
        axes.annotate(
            _seconds(pool.sla_seconds),
            (1, pool.sla_seconds),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            size=8,
            weight="bold",
            color=COLOURS[index],
            va="center",
        )
    axes.set_yscale("log")
    axes.set_ylim(_LEAST_PICKUP_SECONDS * 0.8, max(p.sla_seconds for p in plotted.pools) * 2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _seconds(value)))
    axes.minorticks_off()
    _heading(axes, "Pickup time of each job, and the promises (dashed)", "pickup time")


def _workers(axes: Axes, plotted: Plotted, pool: Figures, colour: str) -> None:
    planned, ready = plotted.recording.planned(pool.pool), plotted.recording.ready(pool.pool)
    x, y = _stairs(ready, plotted)
    axes.fill_between(x, y, step="post", color=colour, alpha=0.35, linewidth=0)
    axes.step(*_stairs(planned, plotted), where="post", color=colour, linewidth=1.6)
    top = max([1, *(step.workers for step in (*planned, *ready))])
    for marker, up in (("^", True), ("v", False)):
        at = _decided(plotted, pool.pool, up)
        axes.scatter(at, [top * 1.18] * len(at), s=17, marker=marker, color=INK, linewidths=0)
    axes.set_ylim(0, top * 1.32)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    _heading(axes, f"Workers of {pool.pool}", "workers", colour)


def _decided(plotted: Plotted, pool: str, up: bool) -> list[float]:
    """When decisions changed the plan in one direction."""
    return [
        at - plotted.begins
        for at, made in plotted.recording.decisions
        if made.pool == pool
        and made.target != made.current
        and (made.target > made.current) is up
        and plotted.begins <= at < plotted.ends
    ]


def _stairs(steps: Sequence[Step], plotted: Plotted) -> tuple[list[float], list[int]]:
    """Steps as points from the first second to the last."""
    before = [step for step in steps if step.at <= plotted.begins]
    within = [step for step in steps if plotted.begins < step.at <= plotted.ends]
    x = [0.0, *(step.at - plotted.begins for step in within), plotted.seconds]
    y = [before[-1].workers if before else 0, *(step.workers for step in within)]
    return x, [*y, y[-1]]


def _cost(axes: Axes, pool: Figures, colour: str, most: float) -> None:
    axes.barh(
        [1, 0],
        [pool.fixed_worker_seconds, pool.worker_seconds],
        height=0.5,
        color=["#CFCFCF", colour],
    )
    for y, value, name in (
        (1, pool.fixed_worker_seconds, f"fixed at {pool.peak_workers}"),
        (0, pool.worker_seconds, f"as needed ({pool.saved_share:.0%} less)"),
    ):
        axes.text(0, y + 0.32, f"{name}: {value:.0f} worker-s", size=8, va="bottom")
    axes.set_xlim(0, most)
    axes.set_ylim(-0.35, 1.75)
    axes.axis("off")


def _legend(axes: Axes, plotted: Plotted) -> None:
    axes.axis("off")
    promises = [
        Patch(
            color=COLOURS[index],
            label=f"{pool.pool}: {pool.quantile:.0%} in {pool.sla_seconds:g} s\n"
            f"{pool.late} of {pool.jobs} late ({pool.late_share:.1%})",
        )
        for index, pool in enumerate(plotted.pools)
    ]
    signs = [
        _sign(marker="o", color="none", markeredgecolor=LATE, markersize=7, label="started late"),
        _sign(color=FAINT, linewidth=1.6, label="workers planned"),
        Patch(color=FAINT, alpha=0.35, linewidth=0, label="workers ready"),
        _sign(marker="^", color="none", markerfacecolor=INK, markersize=5, label="decided: more"),
        _sign(marker="v", color="none", markerfacecolor=INK, markersize=5, label="decided: fewer"),
        _sign(color=INK, linewidth=1, linestyle=":", label="killed (SIGKILL)"),
    ]
    axes.legend(
        handles=[*promises, *signs],
        loc="upper left",
        bbox_to_anchor=(0, 1.02),
        frameon=False,
        fontsize=8.5,
        labelspacing=0.75,
        handlelength=1.6,
    )


def _sign(**look: Any) -> Line2D:
    look.setdefault("markeredgecolor", "none")
    return Line2D([], [], **look)


def _mark_kills(left: Sequence[Axes], plotted: Plotted) -> None:
    for kill in plotted.kills:
        at = kill.at - plotted.begins
        for axes in left:
            axes.axvline(at, color=INK, linewidth=1, linestyle=":")
        left[0].annotate(
            kill.name,
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, 2),
            textcoords="offset points",
            size=8,
            weight="bold",
        )


def _time_axis(left: Sequence[Axes], plotted: Plotted) -> None:
    left[0].set_xlim(0, plotted.seconds + 0.5)
    left[0].xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], nbins=9))
    for axes in left[:-1]:
        axes.tick_params(labelbottom=False)
    left[-1].set_xlabel("seconds after the first job")


def _heading(axes: Axes, text: str, unit: str, colour: str = INK) -> None:
    axes.set_title(text, loc="left", size=9.5, weight="bold", color=colour, pad=4)
    axes.set_ylabel(unit, color=FAINT)
    axes.yaxis.set_label_coords(-0.058, 0.5)


def _seconds(value: float) -> str:
    return f"{value:g} s" if value >= 0.1 else f"{value * 1000:g} ms"
