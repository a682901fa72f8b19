"""Pools decided per second on one core, encoding and publishing included. Prints JSON.

Each round decides every pool from a fresh snapshot with the production core, makes the event of
each decision, encodes and appends them to the event log with the round's record, and commands the
hosts whose plan changed.
The deciding process is pinned to one core; the broker is a process of its own. `cpu` counts this
process's time, `wall` the waiting for the broker's answers too. Two ways of telling: `each`
decision as an event, the most there can be, and `news`, as the service does. `urgent_ms`: one pool
among so many is decided at once, from its snapshot in hand to the command stored. `beside_ms`: the
same while rounds over all pools follow one another as the service schedules them, from the moment
at which the decision is requested, whatever is being decided then. `--slice 1000000` decides all
pools at a time, as it was before slices. `--clock cpu` counts the latter by the CPU time of this
process, which leaves out the broker's answers and whatever else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import time
from collections import deque
from typing import Any

import uvloop

from machine import describe
from penstock.bus.nats import connect
from penstock.bus.protocol import Bus
from penstock.config import Pool, Profile, Settings
from penstock.config.load import check
from penstock.decider import garbage
from penstock.decider.core.decide import decide
from penstock.decider.core.hosts.planned import PlannedWorkers
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool, Rules
from penstock.decider.core.registry import BUILTIN
from penstock.decider.core.state import State
from penstock.decider.publishing.commands import Commander
from penstock.decider.publishing.event_filter import EventFilter
from penstock.decider.publishing.journal import Journal, Made
from penstock.decider.publishing.recorder import Recorder
from penstock.decider.publishing.spans import DecisionSpans
from penstock.decider.rhythm import SLICE_POOLS, Rhythm
from penstock.events.snapshot import HostSnapshot, PoolSnapshot, Quantiles
from penstock.events.subjects import Subjects
from penstock.runtime.broker import Broker

POOLS_A_HOST = 50
START = 1_700_000_000.0
REPEAT_SECONDS = 60.0
_RULES = Rules()
_URGENT = 200
_URGENT_A_SECOND = 20


class Installation:
    """Pools and hosts whose load drifts from round to round."""

    def __init__(self, pools: int, strategy: str) -> None:
        self._random = random.Random(pools)
        profile = Profile(strategy=strategy, min_workers=0, max_workers=100)
        names = [f"pool-{number}" for number in range(pools)]
        self.pools = {
            name: Pool(name=name, kind="queue", queues=(name,), profile=profile) for name in names
        }
        self._seen: dict[str, MeasuredPool] = {}
        self._rates = {name: self._random.uniform(0.1, 10) for name in names}
        self._hosts = [f"host-{number}" for number in range(max(2, pools // POOLS_A_HOST))]
        self._measured_hosts: dict[str, MeasuredHost] = {}
        self._second = 0

    def inputs(self, state: State, now: float, due: frozenset[str] | None = None) -> Inputs:
        """All pools measured anew, or only those that are due; hosts once a second."""
        if self._second != int(now):
            self._second = int(now)
            self._measured_hosts = {
                host: MeasuredHost(_host(host), now - 0.05) for host in self._hosts
            }
        for name in self.pools if due is None else due:
            self._seen[name] = MeasuredPool(self._snapshot(name, state), now - 0.05)
        return Inputs(
            pools=self.pools,
            measured_pools=dict(self._seen),
            measured_hosts=dict(self._measured_hosts),
            strategies=BUILTIN,
            rules=_RULES,
            due=due,
        )

    def _snapshot(self, name: str, state: State) -> PoolSnapshot:
        rate = self._rates[name] = max(self._rates[name] * self._random.uniform(0.9, 1.1), 0.01)
        workers = state.pools[name].workers if name in state.pools else 0
        waiting = self._random.randrange(20)
        busy = min(workers, round(rate))
        return PoolSnapshot(
            pool=name,
            queues=(name,),
            waiting=waiting,
            running=busy,
            oldest_waiting_seconds=waiting * 0.3,
            waiting_ages_seconds=(waiting * 0.3, 0.0) if waiting else (),
            arrival_per_second=rate,
            service=_quantiles(1.0),
            pickup=_quantiles(0.5),
            spawn=_quantiles(1.0),
            workers_ready=workers,
            workers_idle=workers - busy,
            worker_age_seconds=0.2,
        )


def _quantiles(mean: float) -> Quantiles:
    return Quantiles(
        count=100,
        mean_seconds=mean,
        p50_seconds=mean * 0.8,
        p95_seconds=mean * 2.5,
        p99_seconds=mean * 4,
    )


def _host(name: str) -> HostSnapshot:
    return HostSnapshot(host=name, cpu_cores=256.0, memory_bytes=2**40)


class Decider:
    """One round after the other, as the leader does it, with the time each part takes."""

    def __init__(
        self, bus: Bus, subjects: Subjects, installation: Installation, news: bool
    ) -> None:
        self._installation = installation
        self._journal = Journal(bus, subjects, "decider/bench")
        self._commander = Commander(bus, subjects, "decider/bench", 1)
        self._news = EventFilter(REPEAT_SECONDS) if news else None
        self._spans = DecisionSpans()
        pools = installation.pools
        self._recorder = Recorder(subjects, "decider/bench", 1, pools, Rules())
        self._state, self._planned = State(watching_since=START), PlannedWorkers()
        self._ids: dict[str, str] = {}

    async def load(self) -> None:
        await self._commander.load()

    async def round(self, now: float, due: frozenset[str] | None = None) -> dict[str, float]:
        inputs = self._installation.inputs(self._state, now, due)  # measured elsewhere: not counted
        wall, cpu = time.perf_counter(), time.process_time()
        before, outcome = self._state, decide(self._state, inputs, now, self._planned)
        decided = time.process_time()
        self._state = outcome.state
        records = self._recorder.round(before, inputs, 0, outcome, now)
        told = outcome.decisions
        if self._news is not None:
            told = self._news.pick(told, set(), now)
        made = Made(epoch=1, round=self._recorder.number, through=0, now=now)
        events = self._journal.decisions(told, made)
        self._ids.update({event.pool: event.id for event in events})
        self._recorder.stored(await self._journal.publish(events, records=records))
        await self._commander.send(outcome.plans, self._ids, self._spans)
        return {
            "wall": time.perf_counter() - wall,
            "cpu": time.process_time() - cpu,
            "decide": decided - cpu,
            "events": float(len(events)),
        }


async def measure(
    settings: Settings,
    pools: int,
    strategy: str,
    news: bool,
    seconds: float,
    slice_pools: int,
    beside_seconds: float,
    clock: str,
) -> Any:
    garbage.look_rarely()  # as the service does
    bus = await connect(settings)
    installation = Installation(pools, strategy)
    decider = Decider(bus, Subjects(settings.prefix), installation, news)
    await decider.load()
    await decider.round(START)  # the first one starts everything: not usual
    rounds, ends = [], time.monotonic() + seconds
    while len(rounds) < 3 or time.monotonic() < ends:
        rounds.append(await decider.round(START + 1 + len(rounds)))
    urgent = []
    for number in range(_URGENT):
        now = START + 1 + len(rounds) + number / _URGENT
        one = await decider.round(now, due=frozenset([f"pool-{number % pools}"]))
        urgent.append(one["wall"] * 1000)
    beside, pools_per_second = await urgent_beside(
        decider, installation, slice_pools, beside_seconds, clock
    )
    await bus.close()
    each = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    return {
        "pools_per_second_cpu": round(pools / each["cpu"]),
        "pools_per_second_wall": round(pools / each["wall"]),
        "microseconds_a_pool": round(each["cpu"] / pools * 1e6, 1),
        "of_that_deciding": round(each["decide"] / pools * 1e6, 1),
        "events_a_round": each["events"],
        "rounds": len(rounds),
        "urgent_ms": _cuts(urgent),
        "beside_ms": _cuts(beside),
        "beside_pools_per_second": round(pools_per_second),
    }


def _cuts(milliseconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(milliseconds, n=100)
    return {
        "p50": round(cuts[49], 2),
        "p99": round(cuts[98], 2),
        "max": round(max(milliseconds), 2),
    }


async def urgent_beside(
    decider: Decider, installation: Installation, slice_pools: int, seconds: float, clock: str
) -> tuple[list[float], float]:
    """Milliseconds from each request to its command, and pools decided a second meanwhile."""
    chance, rhythm, idle = random.Random(1), Rhythm(slice_pools=slice_pools), 0.0
    clock_seconds = time.process_time if clock == "cpu" else time.monotonic
    # the first round is over all at a time, with a checkpoint and the settings
    rhythm.due(installation.pools, clock_seconds())
    await decider.round(START + 999)
    begin = clock_seconds()
    requests = deque(
        (begin + number / _URGENT_A_SECOND, f"pool-{chance.randrange(len(installation.pools))}")
        for number in range(int(seconds * _URGENT_A_SECOND))
    )
    waiting: dict[str, float] = {}
    took: list[float] = []
    decided = 0
    while requests or waiting:
        now = clock_seconds() + idle
        while requests and requests[0][0] <= now:
            at, pool = requests.popleft()
            waiting.setdefault(pool, at)
            rhythm.request(pool, at)
        due = rhythm.due(installation.pools, now)
        if not due:
            idle += 0.001 if clock == "cpu" else 0.0
            await asyncio.sleep(0.001)
            continue
        whole = len(due) == len(installation.pools)
        one = await decider.round(START + 1000 + now - begin, None if whole else due)
        rhythm.took(one["decide"])
        decided += len(due)
        ended = clock_seconds() + idle
        took += [(ended - waiting.pop(pool)) * 1000 for pool in due & waiting.keys()]
    return took, decided / (clock_seconds() + idle - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", default="10,100,1000,10000")
    parser.add_argument("--strategy", default="deadline")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each number of pools")
    parser.add_argument("--slice", type=int, default=SLICE_POOLS, help="pools decided at a time")
    parser.add_argument("--beside", type=float, default=20.0, help="seconds of urgent requests")
    parser.add_argument("--clock", default="wall", choices=["wall", "cpu"], help="of the latter")
    parser.add_argument("--ways", default="each,news")
    options = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "decisions", "machine": describe()}
    cores = os.sched_getaffinity(0)
    for name in options.strategy.split(","):
        for way in options.ways.split(","):
            found = result.setdefault(name, {}).setdefault(way, {})
            for pools in map(int, options.pools.split(",")):
                with Broker() as broker:
                    settings = check({"nats": {"url": broker.url, "request_timeout_seconds": 30}})
                    os.sched_setaffinity(0, {max(cores)})
                    measured = measure(
                        settings,
                        pools,
                        name,
                        way == "news",
                        options.seconds,
                        options.slice,
                        options.beside,
                        options.clock,
                    )
                    found[pools] = uvloop.run(measured)
                    os.sched_setaffinity(0, cores)  # the next broker takes any core
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
