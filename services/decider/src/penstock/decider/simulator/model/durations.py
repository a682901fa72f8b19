"""Run times of jobs: drawn from a distribution, or taken from a column of the trace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MOST_SECONDS = 366 * 86_400.0
"""Of simulated time, of a job's run time, and of a promise."""
_LEAST_SECONDS = 1e-6
_MOST_CV = 1000.0


class TooLong(ValueError):
    """A run time that cannot be simulated."""


class Durations(Protocol):
    """A source of run times."""

    def draw(
        self,
        random: np.random.Generator,
        count: int,
        columns: Mapping[str, Floats],
        rows: NDArray[np.intp],
    ) -> Floats:
        """Seconds of ``count`` jobs; each comes from one of the trace's rows."""
        ...


class Lognormal(msgspec.Struct, frozen=True):
    """Log-normal with this mean and coefficient of variation (0: all the same)."""

    mean_seconds: float
    cv: float

    def draw(
        self,
        random: np.random.Generator,
        count: int,
        columns: Mapping[str, Floats],
        rows: NDArray[np.intp],
    ) -> Floats:
        sigma2 = math.log1p(self.cv * self.cv)
        mu = math.log(self.mean_seconds) - sigma2 / 2
        return np.exp(mu + math.sqrt(sigma2) * random.standard_normal(count))


class Column(msgspec.Struct, frozen=True):
    """A column of the trace, times the seconds that one of its units takes."""

    name: str
    seconds_per_unit: float = 1.0

    def draw(
        self,
        random: np.random.Generator,
        count: int,
        columns: Mapping[str, Floats],
        rows: NDArray[np.intp],
    ) -> Floats:
        if self.name not in columns:
            raise KeyError(f"no column {self.name!r} with a figure for each job; use lognormal:…")
        return np.maximum(columns[self.name][rows] * self.seconds_per_unit, _LEAST_SECONDS)


def check_longest(seconds: Floats) -> None:
    """Raises TooLong: one of the run times is beyond MOST_SECONDS, or no number."""
    longest = float(seconds.max(initial=0.0))
    if not longest <= MOST_SECONDS:
        raise TooLong(
            f"found a run time of {longest:.3g} s, expected at most {MOST_SECONDS:.0f}; give a "
            "smaller MEAN or CV, or a smaller UNIT of the column"
        )


def parse(text: str) -> Lognormal | Column:
    """``lognormal:MEAN,CV`` or ``column:NAME[,UNIT]``, a unit being so many seconds.

    Raises:
        ValueError: says what was found and what was expected.
    """
    kind, _, rest = text.partition(":")
    name, *figures = rest.split(",")
    try:
        match kind, len(figures):
            case "lognormal", 0 | 1:
                mean, cv = float(name), float(figures[0]) if figures else 1.0
                if 0 < mean <= MOST_SECONDS and 0 <= cv <= _MOST_CV:
                    return Lognormal(mean, cv)
            case "column", 0 | 1:
                unit = float(figures[0]) if figures else 1.0
                if name and 0 < unit < math.inf:
                    return Column(name, unit)
    except ValueError:
        pass
    raise ValueError(
        f"found {text!r}, expected lognormal:MEAN,CV (seconds above 0, up to a year; CV up to "
        f"{_MOST_CV:.0f}) or column:NAME[,UNIT] (UNIT: seconds that 1 in the column stands for)"
    )
