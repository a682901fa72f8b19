"""`penstock pipeline`: the event log into a lake of Parquet files, by Spark."""

from __future__ import annotations

import signal
import sys
from typing import Any

import click

from penstock.cli.command import Group
from penstock.cli.installed import required
from penstock.cli.output import Column, write_json, write_line, write_rows
from penstock.cli.parameters import LAKE, MASTER, SECONDS
from penstock.cli.pipeline.forecast import forecast
from penstock.cli.session import Session

COLUMNS = (
    Column("part", lambda row: row["part"]),
    Column("rows", lambda row: str(row["rows"]), number=True),
    Column("malformed", lambda row: str(row["malformed"]), number=True),
    Column("unknown", lambda row: str(row["unknown"]), number=True),
    Column("files", lambda row: str(row["files"]), number=True),
    Column("bytes", lambda row: str(row["bytes"]), number=True),
    Column("through", lambda row: str(row["through"]), number=True),
)
ROLLED = (
    Column("table", lambda row: row["table"]),
    Column("grain", lambda row: row["grain"]),
    Column("days", lambda row: str(row["days"]), number=True),
    Column("through", lambda row: str(row["through"]), number=True),
)


@click.group(cls=Group, example="penstock pipeline run --lake /data/lake --catch-up")
def pipeline() -> None:
    """The event log and the snapshots as a lake of Parquet files."""


@pipeline.command(
    service=True,
    example="penstock pipeline run --lake /data/lake\n"
    "penstock pipeline run --lake s3a://company/lake --catch-up",
)
@LAKE
@MASTER
@click.option("--catch-up", is_flag=True, help="End when all messages stored now have landed.")
@click.option(
    "--every", type=SECONDS, default="5s", show_default=True, help="Time between two batches."
)
@click.option(
    "--max-messages",
    type=click.IntRange(1),
    default=200_000,
    show_default=True,
    help="Most messages of a stream in a batch.",
)
@click.option("--rollup", is_flag=True, help="With --catch-up: roll up, too, as 'rollup' does.")
@click.pass_obj
def run(
    session: Session,
    /,
    lake: str,
    master: str,
    catch_up: bool,
    every: float,
    max_messages: int,
    rollup: bool,
) -> None:
    """Land events and snapshots in the lake, each once, until SIGTERM or caught up.

    It continues where it stopped, also after a crash. One run at a time writes to a lake; a second
    one is refused.
    """
    if rollup and not catch_up:
        raise click.UsageError(
            "found --rollup without --catch-up; a run without end does not roll up: "
            "schedule 'penstock pipeline rollup' beside it"
        )
    with required("penstock-pipeline"):
        from penstock.pipeline import app  # noqa: PLC0415 - loads Spark
    settings = session.reachable_settings()
    is_ending = False

    def end(*_: object) -> None:
        nonlocal is_ending
        is_ending = True
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    wanted = app.Run(
        lake=lake,
        master=master,
        catch_up=catch_up,
        every_seconds=every,
        max_messages=max_messages,
        rollup=rollup,
    )
    try:
        landed = app.run(settings, wanted)
    except Exception:  # of PySpark, whose answer from Java the signal cut off
        if not is_ending:
            raise
        sys.exit(0)
    _show(session, landed)


@pipeline.command(example="penstock pipeline show --lake /data/lake")
@LAKE
@MASTER
@click.pass_obj
def show(session: Session, /, lake: str, master: str) -> None:
    """Show the contents of the lake, by its manifest."""
    with required("penstock-pipeline"):
        from penstock.pipeline import app  # noqa: PLC0415 - loads Spark
    with app.opened(lake, master) as parts:
        _show(session, {name: part.contents() for name, part in parts.items()})


@pipeline.command(example="penstock pipeline compact --lake /data/lake")
@LAKE
@MASTER
@click.pass_obj
def compact(session: Session, /, lake: str, master: str) -> None:
    """Merge small files; refused while a run writes to this lake, which merges by itself."""
    with required("penstock-pipeline"):
        from penstock.pipeline import app  # noqa: PLC0415 - loads Spark
    merged = app.compact(lake, master)
    if session.as_json:
        write_json(merged)
        return
    for part, files in merged.items():
        write_line(f"{part}: {files} small files merged")


@pipeline.command(example="penstock pipeline rollup --lake /data/lake")
@LAKE
@MASTER
@click.pass_obj
def rollup(session: Session, /, lake: str, master: str) -> None:
    """Roll up by minute, hour and day what has landed since the last time.

    Arrivals, times to pickup, run times, failures, retries and cost by pool and function, as small
    tables beside the lake; see docs/pipeline.md. It may run beside 'penstock pipeline run'.
    """
    with required("penstock-pipeline"):
        from penstock.pipeline import app  # noqa: PLC0415 - loads Spark
    state = app.rollup(session.settings(), lake, master)
    rows = [
        {
            "table": table,
            "grain": grain,
            "days": len(state.folders(table, grain)),
            "through": state.through.get(part, 0),
        }
        for table, part in (("jobs", "events"), ("pools", "snapshots"))
        for grain in ("minute", "hour", "day")
    ]
    write_rows(session, rows, ROLLED, "There are no rollups.")


pipeline.add_command(forecast)


def _show(session: Session, parts: dict[str, Any]) -> None:
    rows = [
        {
            "part": name,
            "rows": contents.rows,
            "malformed": contents.malformed,
            "unknown": contents.unknown,
            "files": len(contents.files),
            "bytes": sum(file.bytes for file in contents.files),
            "through": contents.last,
        }
        for name, contents in parts.items()
    ]
    write_rows(session, rows, COLUMNS, "The lake is empty.")
