"""`penstock reload`: hosts import the job code anew and replace their workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import click
import msgspec

from penstock.bus import lookback
from penstock.bus.protocol import Bus
from penstock.cli.command import Command
from penstock.cli.errors import Failed, Refused
from penstock.cli.output import Column, write_rows
from penstock.cli.parameters import HOST, POOL
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.config.foreign_pools import longest_drain_seconds
from penstock.config.topology import pools as configured_pools
from penstock.events.envelope import new_id, utc_now
from penstock.events.reloading import ReloadReported, ReloadRequested
from penstock.events.snapshot import SNAPSHOTS, HostSnapshot
from penstock.events.subjects import Subjects

REPEAT_SECONDS = 0.5
"""A request is repeated so often: it, or its answer, may be lost, and its executor restarted."""
BEYOND_DRAIN_SECONDS = 180.0
_ANSWER_SECONDS = 5.0
_ENDS = ("done", "failed", "superseded")

COLUMNS = (
    Column("host", lambda row: row.host),
    Column("state", lambda row: row.state),
    Column("workers", lambda row: str(row.workers), number=True),
    Column("left", lambda row: str(row.left), number=True),
    Column("error", lambda row: row.error, rank=1, sentence=True),
)


@click.command(
    cls=Command, example="penstock reload\npenstock reload --host worker-3 --pool thumbnails"
)
@click.option(
    "--host", "hosts", multiple=True, type=HOST, help="Only this host; can be given several times."
)
@click.option(
    "--pool", "pools", multiple=True, type=POOL, help="Only workers of this pool; likewise."
)
@click.option("--wait/--no-wait", default=True, help="Until the old workers have ended (default).")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0.1),
    help="Seconds to wait; else host.drain_seconds and 180.",
)
@click.pass_obj
def reload(
    session: Session,
    /,
    hosts: tuple[str, ...],
    pools: tuple[str, ...],
    wait: bool,
    timeout_seconds: float | None,
) -> None:
    """Import the job code of all hosts anew and replace their workers, a few at a time.

    Jobs that run finish within host.drain_seconds. Where the code cannot be imported the old
    workers go on, and the exit code is 1.
    """

    async def request(bus: Bus, settings: Settings) -> list[ReloadReported]:
        names = sorted(configured_pools(settings))
        if unknown := [name for name in pools if name not in names]:
            raise Refused(f"no pool is called {unknown[0]!r}; pools: {', '.join(names)}")
        subjects = Subjects(settings.prefix)
        chosen = hosts or await living_hosts(bus, subjects, settings.host.lease_seconds)
        if not chosen:
            raise Failed("no host has a living executor; see 'penstock health'")
        patience = timeout_seconds or longest_drain_seconds(settings) + BEYOND_DRAIN_SECONDS
        if not wait:
            patience = min(patience, _ANSWER_SECONDS)
        order = ReloadRequested(id=new_id(), pools=pools)
        return await reload_hosts(bus, subjects, order, chosen, patience, wait=wait)

    reports = session.run(request)
    write_rows(session, reports, COLUMNS, "no host")
    wanted = ("done",) if wait else ("done", "importing", "replacing")
    if failed := [report.host for report in reports if report.state not in wanted]:
        raise Failed(f"not reloaded: {', '.join(failed)}")


async def living_hosts(bus: Bus, subjects: Subjects, lease_seconds: float) -> list[str]:
    """Names of the hosts with a recent snapshot."""
    now, hosts = utc_now(), []
    stream, every_host = subjects.snapshots_stream, subjects.host_snapshot("*")
    for stored in await lookback.latest(bus, stream, every_host):
        snapshot = SNAPSHOTS.decode(stored.body)
        is_recent = (now - stored.at).total_seconds() <= lease_seconds
        if is_recent and isinstance(snapshot, HostSnapshot) and not snapshot.draining:
            hosts.append(snapshot.host)
    return sorted(hosts)


async def reload_hosts(
    bus: Bus,
    subjects: Subjects,
    order: ReloadRequested,
    hosts: Sequence[str],
    patience_seconds: float,
    *,
    wait: bool = True,
    progress: Callable[[ReloadReported], None] = lambda _: None,
) -> list[ReloadReported]:
    """Has hosts reload; repeats the request until each has answered.

    Args:
        bus: a connection.
        subjects: of the installation.
        order: the request.
        hosts: their names.
        patience_seconds: how long to wait.
        wait: until it has ended; else until it has begun.
        progress: called with each answer.

    Returns:
        The last answer of each host; ``failed`` for one that gave none.
    """
    reports: dict[str, ReloadReported] = {}
    complete = asyncio.Event()

    def open_hosts() -> list[str]:
        ends = [r.host for r in reports.values() if r.state in _ENDS or not wait]
        return [host for host in hosts if host not in ends]

    def take(_: str, body: bytes) -> None:
        with suppress(msgspec.MsgspecError):
            report = msgspec.json.decode(body, type=ReloadReported)
            if report.id == order.id and report.host in hosts:
                reports[report.host] = report
                progress(report)
                if not open_hosts():
                    complete.set()

    listening = await bus.listen(subjects.reload_reported(order.id), take)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                while not complete.is_set():
                    for host in open_hosts():
                        body = msgspec.json.encode(order)
                        await bus.signal(subjects.reload_requested(host), body)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(REPEAT_SECONDS):
                            await complete.wait()
    finally:
        await listening.unsubscribe()
    return [reports.get(host) or _silent(order, host) for host in hosts]


def _silent(order: ReloadRequested, host: str) -> ReloadReported:
    return ReloadReported(id=order.id, host=host, state="failed", error="its executor is silent")
