"""Kind ``beanstalkd``: tubes of a beanstalkd server. All counts are exact.

A tube exists while it holds a job or a client uses or watches it: one that is not there is empty.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from penstock.config.load import ConfigError
from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.sources.beanstalkd_client import MOST_JOB_BYTES, BeanstalkdClient, Figures
from penstock.metrics.sources.source import Kind, SourceAway, SourceSettings

Count = Annotated[int, Meta(ge=0)]
AnyFigures = TypeVar("AnyFigures", bound=msgspec.Struct)
_TUBE = re.compile(r"[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]{0,199}")
_NO_TUBE = SourceFault(
    "expected the name of a tube: up to 200 letters, digits and -+/;.$_(), the first no hyphen"
)
_HALF_SECOND = 0.5
"""The server cuts ages to whole seconds."""


class _Server(msgspec.Struct, frozen=True, rename="kebab"):
    """Of ``stats``; ``id`` is another one after each start."""

    id: str
    max_job_size: Count


class _Tube(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Of ``stats-tube``."""

    current_jobs_ready: Count
    current_jobs_reserved: Count
    current_jobs_delayed: Count
    total_jobs: Count
    cmd_delete: Count
    pause_time_left: Count

    @property
    def waiting(self) -> int:
        """Jobs that could start now: none of a tube that is paused."""
        return 0 if self.pause_time_left else self.current_jobs_ready


class _Job(msgspec.Struct, frozen=True, rename="kebab"):
    """Of ``stats-job``."""

    age: Count
    delay: Count
    reserves: Count
    buries: Count
    kicks: Count

    @property
    def ready_seconds(self) -> float | None:
        """For how long it has been ready; None where it was once reserved, buried or kicked.

        The server keeps the time when a job was put, not the one when it became ready again.
        """
        if self.reserves or self.buries or self.kicks:
            return None
        return max(self.age + _HALF_SECOND - self.delay, 0.0)


_EMPTY = _Tube(
    current_jobs_ready=0, current_jobs_reserved=0, current_jobs_delayed=0, total_jobs=0,
    cmd_delete=0, pause_time_left=0,
)  # fmt: skip


class BeanstalkdSource:
    """Three rounds of commands a look, over one connection."""

    def __init__(self, settings: SourceSettings) -> None:
        if settings.secret:
            raise ConfigError(
                f"sources.{settings.name}: beanstalkd knows no passwords: remove secret_file"
            )
        self._client = BeanstalkdClient(settings)
        self._present: frozenset[str] = frozenset()
        self._vanished: Counter[str] = Counter()

    async def look(self, queues: Sequence[str]) -> Mapping[str, SourceLook | SourceFault]:
        names = [queue for queue in queues if _TUBE.fullmatch(queue)]
        commands = ["stats", *(f"stats-tube {name}" for name in names)]
        server_figures, *answers = await self._client.figures(commands)
        server = _read(server_figures or {}, _Server)
        tubes = {
            name: _read(answer, _Tube)
            for name, answer in zip(names, answers, strict=True)
            if answer
        }
        self._watch(frozenset(tubes))
        # The server answers a peek with the whole job.
        is_peeking = server.max_job_size <= MOST_JOB_BYTES
        ages = await self._ages(tubes) if is_peeking else {}
        looks = {
            name: _look(tubes.get(name, _EMPTY), ages.get(name), self._epoch(server, name))
            for name in names
        }
        return {queue: looks.get(queue, _NO_TUBE) for queue in queues}

    async def close(self) -> None:
        await self._client.close()

    async def _ages(self, tubes: Mapping[str, _Tube]) -> dict[str, float]:
        """For how long the next job of each tube has been ready, where that is known."""
        heads = await self._client.next_jobs([name for name in tubes if tubes[name].waiting])
        jobs = await self._client.figures([f"stats-job {job}" for job in heads.values()])
        # One without figures was handled just now.
        ages = {
            name: _read(job, _Job).ready_seconds
            for name, job in zip(heads, jobs, strict=True)
            if job
        }
        return {name: age for name, age in ages.items() if age is not None}

    def _watch(self, present: frozenset[str]) -> None:
        """Notices which tubes vanished: made anew, they count from zero."""
        self._vanished.update(self._present - present)
        self._present = present

    def _epoch(self, server: _Server, name: str) -> str:
        return f"{server.id}.{self._vanished[name]}"


def _look(tube: _Tube, oldest_seconds: float | None, epoch: str) -> SourceLook:
    return SourceLook(
        waiting=tube.waiting,
        claimed=tube.current_jobs_reserved,
        delayed=tube.current_jobs_delayed + tube.current_jobs_ready - tube.waiting,
        oldest_seconds=oldest_seconds if tube.waiting else 0.0,
        arrived=tube.total_jobs,
        ended=tube.cmd_delete,
        epoch=epoch,
    )


def _read(figures: Figures, kind: type[AnyFigures]) -> AnyFigures:
    try:
        return msgspec.convert(figures, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SourceAway(f"found figures that are not those of beanstalkd: {error}") from error


KIND = Kind(open=BeanstalkdSource, schemes=("beanstalkd", "beanstalk"))
