"""`penstock pipeline forecast`: forecasts arrivals from the lake's weeks and publishes them."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.command import Command
from penstock.cli.errors import Failed
from penstock.cli.installed import required
from penstock.cli.output import Column, note, write_rows
from penstock.cli.parameters import LAKE, MASTER, POOL
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.events.forecasting import ForecastMade

COLUMNS = (
    Column("pool", lambda row: row["pool"]),
    Column("model", lambda row: row["model"]),
    Column("loss", lambda row: _number(row["relative_loss"]), number=True),
    Column("covered", lambda row: " · ".join(f"{v:.1%}" for v in row["coverage"].values())),
    Column("origins", lambda row: str(row["origins"]), number=True),
    Column("a day", lambda row: f"{row['jobs']:.0f}", number=True),
    Column("off", lambda row: row["off"]),
)


class Step(click.ParamType[int]):
    """Minutes that divide an hour."""

    name = "step"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+)m", str(value))
        if match is None or int(match[1]) not in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60):
            self.fail(f"found {value!r}, expected minutes that divide an hour, like 1m or 5m")
        return int(match[1]) * 60


class Day(click.ParamType[str]):
    """A date."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return date.fromisoformat(str(value)).isoformat()
        except ValueError:
            self.fail(f"found {value!r}, expected a date like 2026-12-25")


class Zone(click.ParamType[str]):
    """A time zone that this machine knows."""

    name = "zone"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - keeps `--help` quick

        try:
            return ZoneInfo(str(value)).key
        except (KeyError, ValueError, OSError):
            self.fail(f"found {value!r}, expected a time zone like Europe/Berlin or UTC")


@click.command(
    cls=Command,
    example="penstock pipeline forecast --lake /data/lake --zone Europe/Berlin "
    "--special-day 2026-12-25",
)
@LAKE
@MASTER
@click.option("--pool", type=POOL, help="Only this pool.")
@click.option(
    "--weeks",
    type=click.FloatRange(0, 104, min_open=True),
    default=4.0,
    show_default=True,
    help="Weeks of the past that forecasts learn from.",
)
@click.option("--step", type=Step(), default="1m", show_default=True, help="Length of a step.")
@click.option(
    "--zone", type=Zone(), default="UTC", show_default=True, help="Time zone of days and weeks."
)
@click.option(
    "--special-day",
    "special_days",
    type=Day(),
    multiple=True,
    help="A day that is like a Sunday, past or future; repeatable.",
)
@click.option("--no-publish", is_flag=True, help="Only show the forecasts.")
@click.pass_obj
def forecast(
    session: Session,
    /,
    lake: str,
    master: str,
    pool: str | None,
    weeks: float,
    step: int,
    zone: str,
    special_days: tuple[str, ...],
    no_publish: bool,
) -> None:
    """Forecast each pool's arrivals of the next day from weeks of the lake, and publish that.

    Quantiles by day, week and calendar, with the error of such forecasts in the past, against
    seasonal-naive. The metrics service uses one while it does better than simple models.
    """
    with required("penstock-pipeline"):
        from penstock.pipeline import publishing  # noqa: PLC0415
        from penstock.pipeline.analysis import forecasts  # noqa: PLC0415 - loads Spark
        from penstock.pipeline.core.forecast import Plan  # noqa: PLC0415
    plan = Plan(
        step_seconds=step,
        horizon_steps=86_400 // step,
        zone=zone,
        special_days=tuple(sorted(special_days)),
    )
    wanted = forecasts.Wanted(lake=lake, master=master, weeks=weeks, pool=pool or "", plan=plan)
    settings = session.settings() if no_publish else session.reachable_settings()
    try:
        made = forecasts.forecast(settings, wanted)
    except ValueError as error:
        raise Failed(str(error)) from error
    if not no_publish:
        session.run(lambda bus, settings: publishing.publish(bus, settings.prefix, made))
        note(f"published: {len(made)} forecasts")
    write_rows(
        session, [_row(event) for event in made], COLUMNS, "no pool has two days of arrivals"
    )


def _row(made: ForecastMade) -> dict[str, Any]:
    days = len(made.mean_per_second) * made.step_seconds / 86_400
    return {
        "pool": made.pool,
        "model": made.model,
        "relative_loss": made.relative_loss,
        "coverage": made.coverage,
        "origins": made.origins,
        "jobs": sum(made.mean_per_second) * made.step_seconds / days,
        "starts_at": made.starts_at,
        "trained_since": made.trained_since,
        "off": made.off,
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
