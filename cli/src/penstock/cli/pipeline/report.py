"""`penstock report`: which promises were kept, as a page or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.command import Command
from penstock.cli.errors import Failed
from penstock.cli.installed import required
from penstock.cli.output import Column, note, write_json, write_rows
from penstock.cli.parameters import LAKE, MASTER, SECONDS
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.pipeline.core.report import PoolReport

COLUMNS = (
    Column("pool", lambda row: row.pool),
    Column("promise", lambda row: f"{row.quantile * 100:g} % within {row.sla_seconds:g} s"),
    Column("kept", lambda row: {True: "yes", False: "NO", None: "-"}[row.kept]),
    Column("jobs", lambda row: str(row.started), number=True),
    Column("late", lambda row: f"{row.late_share:.2%}" if row.started else "-", number=True),
    Column("p95 s", lambda row: _number(row.p95_seconds), number=True),
    Column("longest s", lambda row: _number(row.longest_seconds), number=True),
    Column("worker-h", lambda row: _number(row.worker_hours), number=True),
)


@click.command(
    cls=Command,
    example="penstock report --lake /data/lake --since 7d --out week.html\n"
    "penstock report --lake /data/lake --since 1d --json",
)
@LAKE
@MASTER
@click.option(
    "--since", type=SECONDS, default="7d", show_default=True, help="How far back, such as 1d."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a page to this file.",
)
@click.pass_obj
def report(session: Session, /, lake: str, master: str, since: float, out: Path | None) -> None:
    """Show for each pool whether its promise was kept, the cost, and the worst moments.

    With --out one HTML file with pictures: the worst moments with the decisions around them, and
    the errors of the forecasts.
    """
    with required("penstock-pipeline"):
        from penstock.pipeline.analysis import reporting  # noqa: PLC0415 - loads Spark
        from penstock.pipeline.pages.page import page  # noqa: PLC0415
    from penstock.config.topology import pools  # noqa: PLC0415 - keeps `--help` quick
    from penstock.events.envelope import utc_now  # noqa: PLC0415

    configured = pools(session.settings())
    try:
        content = reporting.report(lake, master, configured, since / 86_400, utc_now())
    except ValueError as error:
        raise Failed(str(error)) from error
    if out is not None:
        out.write_text(page(content), "utf-8")
        note(f"written: {out}")
    if session.as_json:
        write_json({"since": content.since, "until": content.until, "pools": _rows(content.pools)})
    else:
        write_rows(session, content.pools, COLUMNS, "nothing ran in this time")


def _rows(pools: tuple[PoolReport, ...]) -> list[dict[str, Any]]:
    import msgspec  # noqa: PLC0415 - keeps `--help` quick

    return [
        {**msgspec.to_builtins(pool), "kept": pool.kept, "late_share": pool.late_share}
        for pool in pools
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
