"""`penstock pool hold` and `release`: a pool's workers at a number until a time."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime, timedelta

import click

from penstock.bus.protocol import Bus
from penstock.cli.command import Command
from penstock.cli.end_time import end_time
from penstock.cli.errors import Refused
from penstock.cli.output import note, write_json, write_line
from penstock.cli.parameters import POOL, SECONDS
from penstock.cli.scaling.giver import giver
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.topology import pools
from penstock.events.orders import hold_bounds
from penstock.events.subjects import Subjects
from penstock.operations.orders import OperatorOrders, read_orders
from penstock.views import wording

LONGEST_HOLD = timedelta(days=31)
_NUMBER = click.IntRange(0, 100_000)


@click.command(
    cls=Command,
    example="penstock pool hold reports --at 20 --for 2h --reason 'month end'\n"
    "penstock pool hold mails --at-most 3 --until 2027-01-01T06:00+01:00",
)
@click.argument("pool", type=POOL)
@click.option("--at", "exactly", type=_NUMBER, help="This many workers, whatever the load.")
@click.option("--at-least", type=_NUMBER, help="No fewer workers.")
@click.option("--at-most", type=_NUMBER, help="No more workers.")
@click.option("--for", "seconds", type=SECONDS, help="How long, such as 30m or 2h.")
@click.option("--until", metavar="TIME", help="Until this time (ISO 8601; local without a zone).")
@click.option("--reason", default="", help="Shown in each decision.")
@click.option("--force", is_flag=True, help="Also a pool that the settings here do not name.")
@click.pass_obj
def hold(
    session: Session,
    pool: str,
    exactly: int | None,
    at_least: int | None,
    at_most: int | None,
    seconds: float | None,
    until: str | None,
    reason: str,
    force: bool,
) -> None:
    """Hold a pool's workers at a number, or within bounds, until a time.

    At once, and above everything in the settings: strategy, policies, cooldowns, min_workers and
    max_workers. Only what the hosts can carry limits it. It ends by itself; a second hold replaces
    the first.
    """
    least, most = _bounds(exactly, at_least, at_most)
    if seconds is None and until is None:
        raise Refused("expected how long: --for 2h, or --until 2027-01-01T06:00+01:00")
    end = end_time("hold", seconds, until)
    if end - datetime.now(UTC) > LONGEST_HOLD:
        raise Refused(
            f"a hold ends within {LONGEST_HOLD.days} days; for longer change min_workers and "
            "max_workers of the pool"
        )

    async def request(bus: Bus, settings: Settings) -> None:
        if not force:
            _check_pool(settings, pool)
        orders = OperatorOrders(bus, Subjects(settings.prefix), giver())
        event = await orders.hold(pool, end, least, most, reason)
        if session.as_json:
            write_json(event)

    session.run(request)
    if not session.as_json:
        bounds = hold_bounds(least, most)
        write_line(f"pool {pool} is held {bounds} workers until {wording.clock(end)}")


@click.command(cls=Command, example="penstock pool release reports")
@click.argument("pool", type=POOL)
@click.pass_obj
def release(session: Session, pool: str) -> None:
    """End a hold: the pool is scaled by its settings again."""

    async def request(bus: Bus, settings: Settings) -> bool:
        subjects = Subjects(settings.prefix)
        was_held = pool in (await read_orders(bus, subjects)).holds
        if was_held:
            await OperatorOrders(bus, subjects, giver()).release(pool)
        return was_held

    was_held = session.run(request)
    if session.as_json:
        write_json({"pool": pool, "was_held": was_held})
    elif was_held:
        write_line(f"pool {pool} is scaled by its settings again")
    else:
        note(f"pool {pool} is not held")


def _bounds(
    exactly: int | None, at_least: int | None, at_most: int | None
) -> tuple[int, int | None]:
    """Least and most workers. Raises Refused."""
    if exactly is not None:
        if at_least is not None or at_most is not None:
            raise Refused("--at is one number; leave out --at-least and --at-most")
        return exactly, exactly
    if at_least is None and at_most is None:
        raise Refused("expected --at N, --at-least N or --at-most N")
    if at_least is not None and at_most is not None and at_least > at_most:
        raise Refused(f"--at-least {at_least} exceeds --at-most {at_most}")
    return at_least or 0, at_most


def _check_pool(settings: Settings, name: str) -> None:
    """Raises Refused: a name without a pool would be held without effect."""
    configured = pools(settings)
    pool = configured.get(name)
    if pool is None:
        near = difflib.get_close_matches(name, configured, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "see 'penstock pool ls'"
        raise Refused(f"no pool {name!r} is configured here; {hint} (or --force)")
    if not pool.scalable:
        raise Refused(
            f"pool {name} is pinned at its number ({pool.kind}): it cannot be held; to stop its "
            f"jobs use 'penstock queue pause {pool.queues[0] if pool.queues else name}'"
        )
