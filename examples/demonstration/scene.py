"""What the picture is drawn from."""

from __future__ import annotations

import msgspec
from examples.demonstration.figures import Figures
from examples.demonstration.kills import Kill
from examples.demonstration.recording import Recording


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn. ``begins`` and ``ends`` are POSIX seconds; seconds are counted from then."""

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
