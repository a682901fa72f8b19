"""The demo's load on an installation that runs already; prints how the promises were kept.

    docker-compose --profile demo up demo

Exit code 0 only if every job ended exactly once, as it should, and no promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Iterator, Sequence

from examples.demonstration import load
from examples.demonstration.audit import Audit, Events, judge
from examples.demonstration.figures import Figures, figures, quantile
from examples.demonstration.recording import Recording
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus, BusError, Stored
from penstock.config import ConfigError, Settings
from penstock.config import load as load_settings
from penstock.config.topology import pools
from penstock.events.envelope import Event
from penstock.events.job import JOB_EVENTS
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.views.wording import seconds

FAILED = 1
WIDTH = 100
_LAST_JOB_SECONDS = 300.0


def main() -> int:
    options = _options()
    console = Console(highlight=False, width=WIDTH)
    try:
        return asyncio.run(_run(load_settings(), options, console))
    except (BusError, ConfigError, TimeoutError) as error:
        console.print(f"The load could not be offered: {error or 'jobs did not end in time'}")
        return FAILED


async def _run(settings: Settings, options: argparse.Namespace, console: Console) -> int:
    bus = await connect(settings, "penstock-demo")
    try:
        async with asyncio.timeout(options.minutes * 60 + _LAST_JOB_SECONDS):
            client = Client(bus, prefix=settings.prefix)
            offered = list(arrivals(options.minutes * 60, options.lake, options.seed))
            dispatched = await warmed(client, options.lake)
            console.print(f"Spark is warm; {len(offered)} jobs within {options.minutes:g} minutes")
            dispatched += await offer(client, offered)
            console.print(f"the last of {len(dispatched)} jobs is dispatched")
            histories = await _histories(bus, settings, dispatched)
    finally:
        await bus.close()
    pool_figures, proof = judged(settings, histories)
    _show(pool_figures, proof, console)
    return 0 if proof.clean and all(pool.kept for pool in pool_figures) else FAILED


def arrivals(within: float, lake: str, seed: int) -> Iterator[load.Arrival]:
    """The demo's load, repeated for so many seconds; each time with another seed."""
    for number in range(int(within // load.SECONDS) + 1):
        begins = number * load.SECONDS
        for arrival in load.arrivals(load.streams(lake), seed + number):
            if begins + arrival.at < within:
                yield load.Arrival(begins + arrival.at, arrival.call)


async def warmed(client: Client, lake: str) -> list[str]:
    """Runs two Spark jobs, so that Spark has started; their ids."""
    dice = random.Random(0)
    job_ids = [await client.dispatch(load.report(lake, number, dice)) for number in range(2)]
    for job_id in job_ids:
        await client.wait(job_id)
    return job_ids


async def offer(client: Client, offered: Sequence[load.Arrival]) -> list[str]:
    """Dispatches each job at its time, or as soon as the broker accepts it; their ids."""
    begun = time.monotonic()
    job_ids = []
    for arrival in offered:
        await asyncio.sleep(max(0.0, begun + arrival.at - time.monotonic()))
        job_ids.append(await client.dispatch(arrival.call))
    return job_ids


async def _histories(
    bus: Bus, settings: Settings, dispatched: Sequence[str]
) -> dict[str, list[Stored]]:
    """Each job's events, once it has ended."""
    client, subjects = Client(bus, prefix=settings.prefix), Subjects(settings.prefix)
    histories = {}
    for job_id in dispatched:
        await client.wait(job_id)
        histories[job_id] = await bus.history(subjects.events_stream, subjects.job(job_id))
    return histories


def judged(settings: Settings, stored: dict[str, list[Stored]]) -> tuple[list[Figures], Audit]:
    """Each pool's figures, and what the event log proves."""
    configured = pools(settings).values()
    recording = Recording({queue: pool.name for pool in configured for queue in pool.queues})
    histories: dict[str, Events] = {}
    for job_id, messages in stored.items():
        histories[job_id] = [
            (message.sequence, JOB_EVENTS.decode(message.body)) for message in messages
        ]
        for message, (_, event) in zip(messages, histories[job_id], strict=True):
            if isinstance(event, Event):
                recording.take(event, message.at.timestamp())
    all_figures = [figures(recording, pool, 0, 0) for pool in configured]
    return [pool for pool in all_figures if pool.jobs], judge(histories, len(histories))


def _show(pool_figures: Sequence[Figures], proof: Audit, console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("pool", "promise", "jobs", "late", "p50", "p95", "max"):
        table.add_column(title, justify="left" if title in ("pool", "promise") else "right")
    for pool in pool_figures:
        table.add_row(
            pool.pool,
            f"{pool.quantile:.0%} in {pool.sla_seconds:g} s",
            str(pool.jobs),
            f"{pool.late_share:.1%}",
            *(seconds(quantile(pool.pickups, share)) for share in (0.5, 0.95, 1.0)),
        )
    console.print(table)
    ends = ", ".join(f"{count} {name}" for name, count in sorted(proof.ends.items()))
    console.print(f"{proof.dispatched} jobs, {proof.ended} ended exactly once: {ends}")
    for problem in proof.problems[:10]:
        console.print(problem, style="red")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long jobs are dispatched")
    parser.add_argument("--lake", default="/lake/demo", help="where Spark jobs write")
    parser.add_argument("--seed", type=int, default=1, help="of the load")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
