"""`penstock health`: how the installation is, why, and what it survives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import click

from penstock.cli.command import Command
from penstock.cli.output import write_json, write_lines
from penstock.cli.parameters import SECONDS
from penstock.cli.session import Session
from penstock.health.report import Report, State

EXIT_CODES = {State.HEALTHY: 0, State.WARNING: 3, State.DEGRADED: 4, State.UNHEALTHY: 5}
"""1 and 2 mean that the command itself failed."""
_SIGNS = {State.HEALTHY: "ok", State.WARNING: "!", State.DEGRADED: "!!", State.UNHEALTHY: "!!!"}


@click.command(
    cls=Command,
    example="penstock health\npenstock health --json\npenstock health --watch --every 5s",
)
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option("--every", type=SECONDS, default=5.0, help="With --watch: time between two reports.")
@click.pass_obj
def health(session: Session, /, watch: bool, every: float) -> int:
    """Broker, streams, disk, Spark, workers, services, clocks, and what jobs survive.

    Exit code 0: healthy. 3: warning. 4: degraded. 5: unhealthy.
    """
    report = read_report(session)
    _show(session, report)
    while watch:
        time.sleep(max(every, 0.5))
        report = read_report(session)
        _show(session, report)
    return EXIT_CODES[report.state]


def read_report(session: Session) -> Report:
    """A report now; a broker that cannot be reached is part of the report.

    Raises:
        ConfigError: no broker is known at all.
        NotPermitted: this key may not read the broker's state.
    """
    from penstock.bus.access import NotPermitted  # noqa: PLC0415
    from penstock.bus.protocol import BusError  # noqa: PLC0415 - keeps `--help` quick
    from penstock.events.envelope import utc_now  # noqa: PLC0415
    from penstock.health.rules import judge  # noqa: PLC0415
    from penstock.health.survey import survey, unreachable  # noqa: PLC0415
    from penstock.views.blocked_workflows import with_blocked  # noqa: PLC0415
    from penstock.views.overdue_ticks import with_overdue  # noqa: PLC0415
    from penstock.views.schedule_drift import with_drift  # noqa: PLC0415

    settings = session.reachable_settings()

    async def read() -> Any:
        async with session.bus(settings) as bus:
            facts = await survey(bus, settings)  # type: ignore[arg-type]  # it is one over NATS
            facts = await with_drift(facts, bus, settings)
            facts = await with_blocked(facts, bus, settings)
            return await with_overdue(facts, bus, settings, utc_now())

    try:
        facts = asyncio.run(read())
    except NotPermitted:
        raise
    except BusError as error:
        facts = unreachable(settings, str(error))
    return judge(facts, utc_now())


def _show(session: Session, report: Report) -> None:
    if session.as_json:
        write_json(report)
    else:
        write_lines(lines(report))


def lines(report: Report) -> Iterator[str]:
    """The report for people."""
    yield f"{report.state}, {report.at.astimezone():%H:%M:%S}"
    for finding in report.findings:
        yield f"  {_SIGNS[finding.state]:<3} {finding.component:<9} {finding.state}"
        yield from (f"      {reason}" for reason in finding.reasons)
    if durability := report.durability:
        yield "acknowledged jobs survive"
        for name, survival in (
            ("the end of the broker's process", durability.process),
            ("a loss of power", durability.power),
            ("the loss of a machine", durability.node),
        ):
            yield f"  {name + ':':<33} {survival.answer}, {survival.because}"
