"""Replays a long log of each shipped profile and proves every decision equal. Prints JSON.

The log is made by the production core and the decider's own recorder, in simulated time: a pool
whose arrivals follow a daily pattern with noise and bursts, measured once a second, on one host
that reports as often. Each day is another leader's term. What is replayed is a file, as `penstock
replay --save` writes it: snapshots, rounds, checkpoints, settings, and the decisions that were
worth an event. With ``--every 5`` all is measured and decided each five seconds: whole days in a
fifth of the time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, get_args

import msgspec

from machine import describe
from penstock.bus.saved_log import Entry, line
from penstock.config.load import check
from penstock.config.profiles import PROFILES, PoolKind
from penstock.decider import plugins
from penstock.decider.app import adopted
from penstock.decider.core.decide import decide
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool
from penstock.decider.core.state import State
from penstock.decider.program import program
from penstock.decider.publishing.adopting import records
from penstock.decider.publishing.event_filter import EventFilter
from penstock.decider.publishing.journal import Made, decision_event
from penstock.decider.publishing.recorder import Recorder
from penstock.decider.replay import stretches
from penstock.events.envelope import encode
from penstock.events.snapshot import HostSnapshot, PoolSnapshot, Quantiles
from penstock.events.subjects import Subjects

POOL, HOST, SOURCE = "reports", "host-a", "decider/bench"
START = 1_700_000_000.0
DAY = 86_400
REPEAT_SECONDS = 5.0
_MOVES = 29
"""Shortened days begin at another hour each, over all of the day."""
SERVICE_SECONDS = 2.0


class Queue:
    """A line of jobs, as a fluid with noise: enough to move every input of a decision."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.waiting = 0.0
        self.rate = 5.0
        self._burst = 0.0

    def step(self, second: int, workers: int) -> PoolSnapshot:
        chance = self._random
        daily = 6 + 5 * math.sin(2 * math.pi * second / DAY)
        if chance.random() < 1 / 3600:
            self._burst = chance.uniform(20, 60)
        self._burst *= 0.97
        self.rate += (daily + self._burst - self.rate) * 0.1 + chance.gauss(0, 0.1)
        self.rate = max(self.rate, 0.05)
        done = min(self.waiting + self.rate, workers / SERVICE_SECONDS)
        self.waiting = max(self.waiting + self.rate - done, 0.0)
        waiting, busy = round(self.waiting), min(workers, round(self.rate * SERVICE_SECONDS))
        oldest = round(self.waiting / max(done, 0.5), 6) if waiting else 0.0
        noise = chance.uniform(0.95, 1.05)
        return PoolSnapshot(
            at=datetime.fromtimestamp(START + second, UTC),
            source="metrics/bench",
            pool=POOL,
            queues=(POOL,),
            waiting=waiting,
            running=busy,
            oldest_waiting_seconds=oldest,
            waiting_ages_seconds=(oldest, oldest / 2, 0.0) if waiting else (),
            arrival_per_second=self.rate,
            throughput_per_second=done,
            service=_quantiles(SERVICE_SECONDS * noise),
            pickup=_quantiles(0.5 * noise),
            spawn=_quantiles(noise),
            workers_ready=workers,
            workers_idle=workers - busy,
            queue_age_seconds=0.01,
            worker_age_seconds=0.3,
            worker_cpu_cores=0.05,
            worker_memory_bytes=90_000_000,
        )


def _quantiles(mean: float) -> Quantiles:
    return Quantiles(
        count=600,
        mean_seconds=mean,
        p50_seconds=mean * 0.8,
        p95_seconds=mean * 2.5,
        p99_seconds=mean * 4,
    )


class Maker:
    """Writes one term: what the broker's streams would hold, in a file."""

    def __init__(self, file: BinaryIO, table: dict[str, Any], term: int, sequence: int) -> None:
        settings = check({"cluster": {"master": "local"}, "pools": {POOL: table}})
        self._strategies, self._policies = plugins.strategies(), plugins.policies()
        ours = adopted(settings, self._strategies, self._policies)
        self._pools, self._rules, self._file = ours.pools, ours.rules, file
        self._subjects = Subjects()
        self._queue, self._news = Queue(term), EventFilter(REPEAT_SECONDS)
        self._recorder = Recorder(self._subjects, SOURCE, term, self._pools, self._rules)
        self._epoch, self._sequence = term, sequence
        self._state = State(watching_since=START)
        self.decisions = self.told = 0

    def head(self) -> None:
        """The settings, where a replay looks for them."""
        for told in records(self._pools, self._rules, SOURCE):
            subject = self._subjects.adopted_settings(told.fingerprint, told.part)
            self._file.write(line(Entry(0, START, subject, msgspec.Raw(encode(told)))))

    def run(self, first: int, seconds: int, every: int) -> None:
        for second in range(first, first + seconds):
            workers = self._state.pools[POOL].workers if self._state.pools else 0
            pool, host = self._queue.step(second, workers), self._host(second)
            if (second - first) % every:
                continue
            at = START + second + 0.01
            self._append(self._subjects.host_snapshot(HOST), encode(host), at)
            self._append(self._subjects.pool_snapshot(POOL), encode(pool), at)
            self._round(MeasuredPool(pool, at), MeasuredHost(host, at), START + second + 0.06)

    def _host(self, second: int) -> HostSnapshot:
        return HostSnapshot(
            at=datetime.fromtimestamp(START + second, UTC),
            source="executor/bench",
            host=HOST,
            cpu_cores=64.0,
            memory_bytes=2**37,
            cpu_busy_cores=3.5,
            memory_used_bytes=2**33,
        )

    def _round(self, pool: MeasuredPool, host: MeasuredHost, now: float) -> None:
        inputs = Inputs(
            pools=self._pools,
            measured_pools={POOL: pool},
            measured_hosts={HOST: host},
            strategies=self._strategies,
            policies=self._policies,
            rules=self._rules,
        )
        through, before = self._sequence, self._state
        outcome = decide(before, inputs, now)
        self._state = outcome.state
        messages = self._recorder.round(before, inputs, through, outcome, now)
        made = Made(epoch=self._epoch, round=self._recorder.number, through=through, now=now)
        answers = [self._append(one.subject, one.body, now) for one in messages[:-1]]
        for decision in self._news.pick(outcome.decisions, set(), now):
            event = decision_event(decision, made, SOURCE)
            self._file.write(
                line(Entry(0, now, self._subjects.event(event), msgspec.Raw(encode(event))))
            )
            self.told += 1
        answers.append(self._append(messages[-1].subject, messages[-1].body, now))
        self._recorder.stored(answers)
        self.decisions += len(outcome.decisions)

    def _append(self, subject: str, body: bytes, at: float) -> int:
        self._sequence += 1
        self._file.write(line(Entry(self._sequence, at, subject, msgspec.Raw(body))))
        return self._sequence


def make(path: Path, table: dict[str, Any], day: int, seconds: int, every: int) -> tuple[int, int]:
    """One day in a file of its own; sequences go on from the days before."""
    with path.open("wb", buffering=1 << 20) as file:
        maker = Maker(file, table, day + 1, day * (4 * DAY))
        if not day:
            maker.head()
        maker.run(day * DAY + day * (DAY - seconds) // _MOVES % DAY, seconds, every)
    return maker.decisions, maker.told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--hours", type=float, default=24.0, help="of each day, from a moving hour")
    parser.add_argument(
        "--every", type=int, choices=range(1, 6), default=1, help="seconds between snapshots"
    )
    parser.add_argument("--profile", help="one of those that ship; else each in turn")
    parser.add_argument("--strategy", help="another one than the profile's")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keep", type=Path, help="keep the (last) log here")
    options = parser.parse_args()
    profiles = [options.profile] if options.profile else list(PROFILES)
    results = {profile: prove(profile, options) for profile in profiles}
    head = {"benchmark": "replay", "machine": describe(), "program": program()}
    print(json.dumps({**head, "profiles": results}, indent=2))
    sys.exit(0 if all(result["all_equal"] for result in results.values()) else 1)


def prove(profile: str, options: argparse.Namespace) -> dict[str, Any]:
    """Days of a pool of this profile, decided and recomputed."""
    table = {"profile": profile}
    if profile in get_args(PoolKind):
        table["kind"] = profile
    if options.strategy:
        table["strategy"] = options.strategy
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "log.jsonl"
        made = _make(path, Path(folder), options, table)
        began, cpu = time.perf_counter(), _cpu_seconds()
        verdict = stretches.verify(path, processes=options.processes)
        wall, cpu = time.perf_counter() - began, _cpu_seconds() - cpu
        size = path.stat().st_size
    result = {
        "days": options.days,
        "hours_a_day": options.hours,
        "seconds_between_snapshots": options.every,
        "processes": options.processes,
        "log_bytes": size,
        **made,
        "replay_seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        "microseconds_a_decision": round(cpu / max(verdict.decisions, 1) * 1e6, 1),
        "recomputed": verdict.decisions,
        "equal": verdict.equal_decisions,
        "told": verdict.published,
        "told_equal": verdict.equal_published,
        "gaps": verdict.gaps,
        "all_equal": verdict.is_equal,
    }
    print(f"{profile}: {verdict.equal_decisions} of {verdict.decisions} equal", file=sys.stderr)
    return result


def _make(path: Path, folder: Path, options: Any, table: dict[str, Any]) -> dict[str, Any]:
    began = time.perf_counter()
    parts = [folder / f"{day}.jsonl" for day in range(options.days)]
    seconds = round(options.hours * 3600)
    work = [(part, table, day, seconds, options.every) for day, part in enumerate(parts)]
    with ProcessPoolExecutor(options.processes) as executor:
        counts = list(executor.map(make, *zip(*work, strict=True)))
    with path.open("wb") as whole:
        for part in parts:
            with part.open("rb") as file:
                while block := file.read(1 << 24):
                    whole.write(block)
            part.unlink()
    return {
        "making_seconds": round(time.perf_counter() - began, 1),
        "decisions": sum(made for made, _ in counts),
        "events": sum(told for _, told in counts),
    }


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
