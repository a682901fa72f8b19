"""Schedules that the settings declare: tables ``[schedules.NAME]``."""

from __future__ import annotations

from typing import Any, Literal

from penstock.config.section import NonNegative, Section


class ScheduleTable(Section, frozen=True, kw_only=True):
    """A job that is dispatched again and again; stored by `penstock schedule sync`.

    Attributes:
        job: name of the registered function, such as ``reports.rebuild``.
        cron: five fields, or six with seconds first.
        zone: a name of the time zone database.
        arguments: of each job.
        queue: instead of the function's own.
        priority: for queues that have priorities.
        tags: besides the function's own.
        missed: of ticks while no orchestrator ran, the latest runs ``once``, or all are skipped.
        expires_seconds: a job not started so long after its tick never is; 0: no limit.
    """

    job: str
    cron: str
    zone: str = "UTC"
    arguments: dict[str, Any] = {}
    queue: str = ""
    priority: Literal["high", "normal", "low"] = "normal"
    tags: tuple[str, ...] = ()
    missed: Literal["once", "skip"] = "once"
    expires_seconds: NonNegative = 0.0
