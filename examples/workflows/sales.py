"""Sales of a shop go into a lake, day by day: PySpark jobs, and a workflow that closes a week.

`daily_sales.toml` is a workflow of the same jobs as a file.
"""

from __future__ import annotations

from datetime import date, timedelta

import msgspec

from penstock.jobs import Context, WorkflowContext, job, workflow
from penstock.jobs.sink import write_parquet

ORDERS_A_DAY = 1_000
MAX_DAMAGED = 0.1
"""Share of a day's rows that may be unreadable without a person having looked at it."""


class Verdict(msgspec.Struct):
    """What the rows of a day are worth.

    Attributes:
        rows: number of all rows.
        damaged: number of those without a price.
        quality: ``clean``, or ``damaged`` where that is more than a tenth.
    """

    rows: int
    damaged: int
    quality: str


class Closed(msgspec.Struct):
    """What became of some days: rows that were loaded, turnover by country in cents."""

    rows: int
    turnover: dict[str, int]


@job(queue="lake")
def extract(context: Context, lake: str, day: date, damaged_every: int = 50) -> int:
    """Stands in for the shop's database: writes a day's orders, of which some have no price."""
    orders = context.spark.range(ORDERS_A_DAY).selectExpr(
        "id AS order",
        "element_at(array('DE', 'FR', 'PL'), CAST(id % 3 AS INT) + 1) AS country",
        f"IF(id % {damaged_every} = 0, NULL, 100 * (id % 90 + 1)) AS cents",
    )
    write_parquet(context, orders, _folder(lake, "raw", day), overwrite=True)
    return ORDERS_A_DAY


@job(queue="lake")
def validate(context: Context, lake: str, day: date) -> Verdict:
    raw = context.spark.read.parquet(_folder(lake, "raw", day))
    rows, damaged = raw.count(), raw.where("cents IS NULL").count()
    return Verdict(rows, damaged, "damaged" if damaged > MAX_DAMAGED * rows else "clean")


@job(queue="lake")
def load(context: Context, lake: str, day: date) -> int:
    """Puts the rows that have a price where reports find them; returns their number."""
    return _write_rows(context, lake, day, "sales", "cents IS NOT NULL")


@job(queue="lake")
def quarantine(context: Context, lake: str, day: date) -> int:
    """Puts the rows without a price aside; returns their number."""
    return _write_rows(context, lake, day, "quarantine", "cents IS NULL")


@job(queue="reports")
def report(context: Context, lake: str, first: date, last: date) -> dict[str, int]:
    """Turnover from one day to another in cents, by country."""
    sales = context.spark.read.parquet(f"{lake}/sales").where(f"day BETWEEN '{first}' AND '{last}'")
    turnover = sales.groupBy("country").sum("cents").orderBy("country").collect()
    return {row["country"]: row["sum(cents)"] for row in turnover}


@workflow(queue="workflows")
async def close_days(ctx: WorkflowContext, lake: str, damaged_every: dict[date, int]) -> Closed:
    """Loads several days beside each other, then reports on them.

    Args:
        ctx: what it may await.
        lake: the folder of the lake.
        damaged_every: for each day, which of its rows lack a price.
    """
    days = sorted(damaged_every)
    loaded = await ctx.gather(*(close_day(ctx, lake, day, damaged_every[day]) for day in days))
    ctx.set_status(stage="report")
    turnover = await ctx.run(report(lake=lake, first=days[0], last=days[-1]))
    return Closed(sum(loaded), turnover)


async def close_day(ctx: WorkflowContext, lake: str, day: date, damaged_every: int) -> int:
    """One day; a damaged one waits for a person. Returns the number of rows that were loaded."""
    await ctx.run(extract(lake=lake, day=day, damaged_every=damaged_every))
    verdict = await ctx.run(validate(lake=lake, day=day))
    if verdict.quality == "damaged":
        ctx.set_status(stage=f"{day} is damaged: {verdict.damaged} of {verdict.rows} rows")
        answer = ctx.wait_signal(f"accept-{day}", bool, timeout=timedelta(days=2), default=False)
        if not await answer:
            return 0
        await ctx.run(quarantine(lake=lake, day=day))
    return await ctx.run(load(lake=lake, day=day))


def _write_rows(context: Context, lake: str, day: date, place: str, condition: str) -> int:
    rows = context.spark.read.parquet(_folder(lake, "raw", day)).where(condition)
    write_parquet(context, rows, _folder(lake, place, day), overwrite=True)
    return rows.count()


def _folder(lake: str, place: str, day: date) -> str:
    return f"{lake}/{place}/day={day}"
