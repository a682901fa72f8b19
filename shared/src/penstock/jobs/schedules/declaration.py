"""Schedules declared in code or in ``penstock.toml``, as values.

`penstock schedule sync` stores them, `penstock schedule diff` compares them with what is stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from penstock.config import Settings
from penstock.config.schedules import ScheduleTable
from penstock.config.topology import Priority
from penstock.events.subjects import check_name
from penstock.jobs.errors import BadSchedule, UnknownJob
from penstock.jobs.job_type import Call, JobType
from penstock.jobs.registry import check_tags
from penstock.jobs.schedules.schedule import Missed, check

CODE, SETTINGS = "code", "settings"
"""Where a schedule is declared: in a module of jobs, or in ``penstock.toml``."""


class Declaration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A declared schedule; its fields are those of :class:`ScheduleTable`.

    Attributes:
        arguments: plain values, checked against the function's signature when it is stored.
        origin: ``CODE`` or ``SETTINGS``.
    """

    name: str
    job: str
    cron: str
    zone: str = "UTC"
    arguments: dict[str, Any] = {}
    queue: str = ""
    priority: Priority = "normal"
    tags: tuple[str, ...] = ()
    missed: Missed = "once"
    expires_seconds: float = 0.0
    origin: str = CODE

    @property
    def fingerprint(self) -> str:
        """Differs where anything that is declared differs."""
        text = msgspec.json.encode(msgspec.to_builtins(self), order="sorted")
        return blake2b(text, digest_size=10).hexdigest()


_in_code: dict[str, tuple[Declaration, object]] = {}
"""By name, with the execution of the module that the job was defined in."""


def schedule(
    name: str,
    call: Call,
    cron: str,
    *,
    zone: str = "UTC",
    queue: str = "",
    priority: Priority = "normal",
    tags: Iterable[str] = (),
    missed: Missed = "once",
    expires_seconds: float = 0.0,
) -> None:
    """Declares a schedule, in a module of jobs; `penstock schedule sync` stores it.

    Args:
        name: of the schedule.
        call: what runs at each tick.
        cron: five fields, or six with seconds first.
        zone: a name of the time zone database.
        queue: instead of the function's own.
        priority: for queues that have priorities.
        tags: besides the function's own.
        missed: of ticks while no orchestrator ran, the latest runs ``once``, or all are skipped
            (``skip``).
        expires_seconds: a job not started so long after its tick never is; 0: no limit.

    Raises:
        BadName, BadSchedule: the name, the cron expression or the zone cannot be, or another
            schedule has the name. UnknownJob: no worker can import the function.

    Example::

        schedule("nightly", rebuild(table="orders"), "30 2 * * *", zone="Europe/Berlin")
    """
    check_name("schedule", name)
    check(cron, zone)
    if call.job.unreachable:
        raise UnknownJob(f"schedule {name!r}: {call.job.name}: {call.job.unreachable}")
    declaration = Declaration(
        name=name,
        job=call.job.name,
        cron=cron,
        zone=zone,
        arguments=msgspec.msgpack.decode(call.arguments),
        queue=check_name("queue", queue) if queue else "",
        priority=priority,
        tags=check_tags(tags),
        missed=missed,
        expires_seconds=expires_seconds,
    )
    module_run = call.job.made_in if isinstance(call.job, JobType) else None
    earlier, defined_in = _in_code.get(name, (declaration, None))
    if earlier != declaration and defined_in is module_run:
        raise BadSchedule(
            f"two schedules are called {name!r}: one of {earlier.job} and one of "
            f"{declaration.job}; rename one"
        )
    _in_code[name] = (declaration, module_run)


def declared(settings: Settings) -> list[Declaration]:
    """All that the settings and the modules imported so far declare, by name.

    Raises:
        BadName, BadSchedule: a table cannot be a schedule, or code declares the same name.
    """
    by_name = {name: declaration for name, (declaration, _) in _in_code.items()}
    for declaration in in_settings(settings):
        if declaration.name in by_name:
            raise BadSchedule(
                f"schedule {declaration.name!r} is declared twice: in [schedules."
                f"{declaration.name}] of penstock.toml, and in code for "
                f"{by_name[declaration.name].job}; remove one of them"
            )
        by_name[declaration.name] = declaration
    return [by_name[name] for name in sorted(by_name)]


def in_settings(settings: Settings) -> list[Declaration]:
    """The declarations of ``penstock.toml``, by name. Raises BadName, BadSchedule."""
    return [_of_table(name, table) for name, table in sorted(settings.schedules.items())]


def _of_table(name: str, table: ScheduleTable) -> Declaration:
    try:
        check(table.cron, table.zone)
        check_tags(table.tags)
    except ValueError as error:
        raise BadSchedule(f"schedules.{name}: {error}") from error
    except BadSchedule as error:
        raise BadSchedule(f"schedules.{name}: {error}") from None
    fields = {field: getattr(table, field) for field in ScheduleTable.__struct_fields__}
    return Declaration(name=name, origin=SETTINGS, **fields)
