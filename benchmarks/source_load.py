"""The messages of `sources.py`: stretches of recorded traces, or synthetic ones of their shape."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.decider.simulator.model import traces

Floats = NDArray[np.float64]
RECORDED = ("azure_llm_code_2023", "nab_elb_request_count", "worldcup98_1998-06-22_to_28")
MEAN_SECONDS, _CV, _MOST_SECONDS = 1.0, 0.8, 4.0
"""Messages run so long: a log-normal, cut."""
_BINS = 24
_PEAK_SECONDS = 10.0


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent.

    Attributes:
        arrivals: seconds from the first moment, sorted.
        services: seconds of work of each.
        peak: messages in work at a time, at most, if none waited (mean over 10 s).
    """

    trace: str
    arrivals: list[float]
    services: list[float]
    peak: int


def messages(
    name: str, folder: Path | None, seconds: float, factor: float, erlang: float, seed: int
) -> Messages:
    """The messages of one trace.

    Args:
        name: one of ``RECORDED``.
        folder: that holds the files; None for synthetic traces.
        seconds: that they take.
        factor: seconds of the trace in one of those.
        erlang: mean number of messages in work.
        seed: of what is drawn.
    """
    draws = np.random.default_rng(seed)
    path = folder / f"{name}.csv" if folder else None
    recorded = path is not None and path.is_file()
    rates = _recorded(path, seconds * factor) if path and recorded else _synthetic(name)
    rates = rates / rates.mean() * erlang / MEAN_SECONDS
    width = seconds / len(rates)
    counts = draws.poisson(rates * width)
    arrivals = np.sort(
        np.concatenate(
            [(index + draws.random(count)) * width for index, count in enumerate(counts)]
        )
    )
    spread = math.sqrt(math.log1p(_CV**2))
    services = draws.lognormal(math.log(MEAN_SECONDS) - spread**2 / 2, spread, len(arrivals))
    services = np.minimum(services, _MOST_SECONDS)
    return Messages(
        trace=name if recorded else f"synthetic, shaped like {name}",
        arrivals=arrivals.tolist(),
        services=services.tolist(),
        peak=_peak(arrivals, services, seconds),
    )


def _recorded(path: Path, window: float) -> Floats:
    """Relative rates over the stretch of the trace that changes most."""
    trace = traces.read(path)
    counts = np.ones(len(trace.times)) if trace.counts is None else trace.counts
    ends = float(trace.times[-1])
    width = window / _BINS
    if trace.widths is not None:  # no finer than it was recorded
        width = max(width, float(np.median(trace.widths)))
    edges = np.arange(0.0, ends + width, width)
    rates, _ = np.histogram(trace.times, edges, weights=counts)
    bins = max(round(window / width), 2)
    usual = float(np.median(rates))
    best: Floats = rates[:bins].astype(float)
    for begin in range(0, max(len(rates) - bins, 1), max(bins // 4, 1)):
        stretch = rates[begin : begin + bins].astype(float)
        if stretch.mean() >= usual and _changes(stretch) > _changes(best):
            best = stretch
    return best


def _changes(rates: Floats) -> float:
    return float(rates.std() / rates.mean()) if rates.mean() else 0.0


def _synthetic(name: str) -> Floats:
    """Bursts, a step, or a rise and fall."""
    places = np.arange(_BINS)
    if name.startswith("azure"):
        return np.where(places % 8 < 2, 3.0, 0.4)
    if name.startswith("nab"):
        return np.where((places >= 8) & (places < 14), 4.0, 0.7)
    bump: Floats = 0.3 + np.sin(places / _BINS * math.pi) ** 2
    return bump


def _peak(arrivals: Floats, services: Floats, seconds: float) -> int:
    moments = np.arange(0.0, seconds, 1.0)
    ends = arrivals + services
    busy = np.array([((arrivals <= at) & (ends > at)).sum() for at in moments], dtype=float)
    width = int(_PEAK_SECONDS)
    smooth = np.convolve(busy, np.ones(width) / width, "same")
    return max(math.ceil(smooth.max()), 1)
