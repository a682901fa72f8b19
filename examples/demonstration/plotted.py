"""The values that the picture shows."""

from __future__ import annotations

import msgspec
from examples.demonstration.figures import Figures
from examples.demonstration.kills import Kill
from examples.demonstration.recording import Recording


class Plotted(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the demo; ``begins`` and ``ends`` are POSIX seconds."""

    recording: Recording
    pools: tuple[Figures, ...]
    kills: tuple[Kill, ...]
    begins: float
    ends: float
    title: str
    subtitle: str

    @property
    def seconds(self) -> float:
        return self.ends - self.begins
