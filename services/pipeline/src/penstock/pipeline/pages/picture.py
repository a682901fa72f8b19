"""A pool's hours as a picture: arrivals, workers, late starts."""

from __future__ import annotations

import io

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure

from penstock.pipeline.core.report import PoolReport

_SIZE = (9.0, 3.4)
_DOTS = 110
_HOUR_DAYS = 1 / 24


def draw(pool: PoolReport) -> bytes:
    """PNG."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    came, late = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    _draw_load(came, pool)
    _draw_late(late, pool)
    locator = AutoDateLocator()
    late.xaxis_date()
    late.xaxis.set_major_locator(locator)
    late.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=_DOTS, metadata={"Software": None})
    return written.getvalue()


def _draw_load(axis: Axes, pool: PoolReport) -> None:
    times = date2num([hour.at for hour in pool.hours])
    arrivals = [hour.arrivals for hour in pool.hours]
    axis.bar(times, arrivals, width=_HOUR_DAYS, align="edge", color="#9db8d2")
    axis.set_ylabel("jobs an hour", color="#4d6f91", fontsize=8)
    axis.tick_params(labelsize=7)
    measured = [(hour.at, hour.workers) for hour in pool.hours if hour.workers is not None]
    if not measured:
        return
    beside = axis.twinx()
    at, workers = zip(*measured, strict=True)
    beside.step(date2num(at), workers, where="post", color="#222222", lw=1)
    beside.set_ylim(bottom=0)
    beside.set_ylabel("workers", fontsize=8)
    beside.tick_params(labelsize=7)


def _draw_late(axis: Axes, pool: PoolReport) -> None:
    times = date2num([hour.at for hour in pool.hours])
    shares = [100 * hour.late / max(hour.started, 1) for hour in pool.hours]
    axis.bar(times, shares, width=_HOUR_DAYS, align="edge", color="#c0392b")
    axis.axhline(100 * (1 - pool.quantile), color="0.4", linewidth=0.8, linestyle="--")
    axis.set_ylim(0, max([*shares, 200 * (1 - pool.quantile)]))
    axis.set_ylabel("late, %", color="#c0392b", fontsize=8)
    axis.tick_params(labelsize=7)
