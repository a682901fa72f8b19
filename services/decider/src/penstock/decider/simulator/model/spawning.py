"""Start times of workers, given how many start at the same time on their host."""

from __future__ import annotations

import math

import msgspec
import numpy as np

_DRAWS = 4096


class Spawning(msgspec.Struct, frozen=True, kw_only=True):
    """From a command to a worker that could take a job.

    Attributes:
        seconds: mean, of one that starts alone.
        contention: what each other one that is starting adds, as a share of ``seconds``.
        cv: coefficient of variation.
    """

    seconds: float
    contention: float = 0.02
    cv: float = 0.1


class Latencies:
    """Draws spawn latencies, in the order in which they are asked for."""

    def __init__(self, spawning: Spawning, seed: int) -> None:
        self._spawning = spawning
        self._random = np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[2])
        self._factors: list[float] = []

    def next_seconds(self, starting: int) -> float:
        """Of a worker that starts while ``starting`` others do."""
        if not self._factors:
            sigma2 = math.log1p(self._spawning.cv**2)
            normal = self._random.standard_normal(_DRAWS)
            self._factors = np.exp(math.sqrt(sigma2) * normal - sigma2 / 2).tolist()
        slower = 1 + self._spawning.contention * starting
        return self._spawning.seconds * slower * self._factors.pop()
