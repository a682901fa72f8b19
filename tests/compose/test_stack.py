"""The whole on several hosts' worth of containers: load, then one misfortune after the other."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import datetime
from functools import partial

from msgspec.structs import replace
from tests.chaos.chaos_jobs import runs
from tests.compose import figures
from tests.compose.compose_jobs import add_up, guard, nap
from tests.compose.stack import (
    EXECUTOR_CPUS,
    EXECUTOR_MEMORY_MB,
    OURS,
    SPARK,
    docker,
    docker_soon,
    host_of,
)
from tests.compose.watched import LOAD_PER_SECOND, Watched, seconds_after
from tests.histories import overlapping
from tests.integration.otlp import Collector, Received
from tests.waiting import eventually

from penstock import telemetry
from penstock.config import Settings
from penstock.events.job import JobStarted
from penstock.events.scaling import LeaderChanged

SPARK_PARTS = ("master", "worker", "connect")
SLA_SECONDS, QUANTILE, MIN_WORKERS = 5.0, 0.95, 6
STEADY_SECONDS = 20.0


async def test_all_jobs_end_exactly_once_and_the_promise_is_kept(site: Watched) -> None:
    before = len(site.acknowledged)
    async with site.load():
        spark = [await site.dispatch(add_up(numbers=1000)) for _ in range(2)]
        enough = before + STEADY_SECONDS * LOAD_PER_SECOND / 2
        await eventually(lambda: len(site.acknowledged) >= enough, 60, "load")
    answers = [await site.client.wait(each, 90) for each in spark]
    assert [view.result for view in answers] == [999_000, 999_000]
    await promise_is_kept(site, "steady load")


async def test_a_host_is_what_its_container_may_use(site: Watched) -> None:
    hosts = await site.hosts()
    assert {each.cpu_cores for each in hosts.values()} == {EXECUTOR_CPUS}
    assert {each.memory_bytes for each in hosts.values()} == {EXECUTOR_MEMORY_MB * 1024**2}


async def test_jobs_and_workers_of_a_killed_executor_go_elsewhere(site: Watched) -> None:
    async with site.load():
        long = [await site.dispatch(nap(seconds=12)) for _ in range(4)]
        starts = [await site.soon(partial(site.started, j), 10, "start") for j in long]
        victim = starts[0][0].host
        hit = [job for job, [start] in zip(long, starts, strict=True) if start.host == victim]
        container = container_of(site, "executor", victim)
        killed_at = await kill(container)
        try:
            await moves_in_time(site, victim, hit, killed_at)
        finally:
            await docker_soon("start", container)
    await site.whole()


async def moves_in_time(site: Watched, victim: str, hit: list[str], killed_at: datetime) -> None:
    """Its jobs within 5 s, its workers within 10."""

    async def workers() -> bool:
        return await site.ready("work", without=victim) >= MIN_WORKERS

    await site.soon(workers, 20, "as many workers on the other hosts")
    moved_in = (datetime.now(killed_at.tzinfo) - killed_at).total_seconds()
    again = [await site.soon(partial(second_start, site, j), 20, "again") for j in hit]
    slowest = max(seconds_after(killed_at, each) for each in again)
    figures.note(
        f"executor killed: {len(hit)} jobs elsewhere after {slowest:.1f} s at most, "
        f"workers after {moved_in:.1f} s"
    )
    assert victim not in {each.host for each in again}
    assert slowest <= 5
    assert moved_in <= 10


async def test_another_decider_leads_when_the_leader_is_killed(site: Watched) -> None:
    async with site.load():
        leader = (await site.leaders())[-1]
        container = container_of(site, "decider", leader.leader)
        killed_at = await kill(container)

        async def successor() -> LeaderChanged | None:
            last = (await site.leaders())[-1]
            return last if last.epoch > leader.epoch else None

        found = await site.soon(successor, 20, "another leader")
        figures.note(f"leader killed: the other led after {seconds_after(killed_at, found):.1f} s")
        assert seconds_after(killed_at, found) <= 5
        await docker_soon("start", container)
    await commands_are_sound(site)


async def test_all_goes_on_after_the_broker_was_killed(site: Watched) -> None:
    [broker] = site.stack.containers("nats")
    async with site.load():
        under_way = [await site.dispatch(nap(seconds=4)) for _ in range(3)]
        await kill(broker)
        await docker_soon("start", broker)
        await site.whole()
        later = await site.dispatch(nap(seconds=0))
        ended = [await site.client.wait(each, 60) for each in [*under_way, later]]
    assert {view.state.value for view in ended} == {"completed"}
    await site.all_ended()
    await commands_are_sound(site)


async def test_a_host_that_is_cut_off_does_not_run_an_exclusive_job_twice(site: Watched) -> None:
    jobs = [await site.dispatch(guard(seconds=3)) for _ in range(6)]
    [first] = await site.soon(lambda: site.started(jobs[0]), 20, "the first one")
    container, network = (
        container_of(site, "executor", first.host),
        f"{site.stack.project}_default",
    )
    await docker_soon("network", "disconnect", network, container)
    try:
        await site.soon(lambda: started_elsewhere(site, jobs, first.host), 60, "a standby")
    finally:
        await docker_soon("network", "connect", network, container)
    histories = await site.all_ended()
    told = runs(site.stack.witness / "guard")
    assert {run.job_id for run in told} == set(jobs)
    assert overlapping(told) == []
    lost = [e for job in jobs for _, e in histories[job] if isinstance(e, JobStarted)]
    figures.note(f"host cut off: 6 exclusive jobs ran in {len(lost)} attempts, never two at a time")


async def test_one_trace_tells_of_a_job_and_one_of_a_scaling(
    site: Watched, collector: Collector
) -> None:
    shutdown = telemetry.setup("penstock-client", "test", traced(site, collector))
    try:
        job_id = await site.dispatch(nap(seconds=0.1))
    finally:
        shutdown()
    await asyncio.gather(*(site.dispatch(nap(seconds=2)) for _ in range(60)))  # needs more workers
    run = await eventually(lambda: span_of(collector, "run", job_id), 20, "run")
    assert run is not None
    dispatch = next(span for span in collector.spans if span.span_id == run.parent_id)
    assert (dispatch.service, run.service) == ("penstock-client", "penstock-worker")
    assert dispatch.trace_id == run.trace_id
    story = await eventually(lambda: whole_scaling(collector), 40, "a whole scaling")
    figures.note(f"one trace of a scaling: {' → '.join(story)}")


SCALING = {
    "measure": "penstock-metrics",
    "decide": "penstock-decider",
    "command": "penstock-decider",
    "spawn": "penstock-executor",
    "first": "penstock-worker",
}
"""First words of spans, and the services that they come from: four containers."""


def whole_scaling(collector: Collector) -> list[str]:
    """The spans' names of a trace that tells all of it, in order; empty while none does."""
    traces: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for span in collector.spans:
        traces[span.trace_id][span.name.split()[0]] = (span.service, span.name)
    for found in traces.values():
        if {word: service for word, (service, _) in found.items()}.items() >= SCALING.items():
            return [found[word][1] for word in SCALING]
    return []


def span_of(collector: Collector, word: str, job_id: str) -> Received | None:
    key = telemetry.names.MESSAGING_MESSAGE_ID
    return next(
        (
            span
            for span in collector.spans
            if span.name.startswith(f"{word} ") and span.attributes.get(key) == job_id
        ),
        None,
    )


async def test_everything_is_restarted_one_by_one_and_no_job_is_late(site: Watched) -> None:
    async with site.load():
        for service in (*OURS, "nats", *SPARK):
            for container in site.stack.containers(service):
                await docker_soon("restart", "-t", "60", container)
                await site.whole()
                await site.healthy(container)
        answer = await site.client.wait(await site.dispatch(add_up(numbers=1000)), 90)
    assert answer.result == 999_000
    await promise_is_kept(site, "rolling restart")
    await commands_are_sound(site)


async def test_spark_says_that_it_is_not_well(site: Watched) -> None:
    """Without its master; the master's own check cannot be asked while that is paused."""
    parts = {name: site.stack.containers(f"spark-{name}")[0] for name in SPARK_PARTS}

    def ill(name: str) -> str:
        """What its check says; empty while it passes."""
        try:
            docker("exec", parts[name], "python", "/opt/spark/health.py", name)
        except AssertionError as error:
            return str(error)
        return ""

    assert [ill(name) for name in SPARK_PARTS] == ["", "", ""]
    await docker_soon("pause", parts["master"])
    try:
        found = {name: ill(name) for name in ("worker", "connect")}
    finally:
        await docker_soon("unpause", parts["master"])
    assert all("no answer" in text for text in found.values()), found
    for container in parts.values():
        await site.healthy(container)


# --- what they share -----------------------------------------------------------------------------
async def promise_is_kept(site: Watched, what: str) -> None:
    pickups = await site.pickups("work")
    late = sum(seconds > SLA_SECONDS for seconds in pickups)
    reached = pickups[int(QUANTILE * (len(pickups) - 1))]
    figures.note(f"{what}: {len(pickups)} jobs, 95 % started within {reached:.2f} s, {late} late")
    assert late <= (1 - QUANTILE) * len(pickups)


async def commands_are_sound(site: Watched) -> None:
    """Each host's orders grow, and no order is of somebody who never led."""
    commands, epochs = await site.commands(), {each.epoch for each in await site.leaders()}
    last: dict[str, tuple[int, int]] = {}
    for command in commands:
        assert command.order > last.get(command.host, (0, 0)), command
        assert command.epoch in epochs, command
        last[command.host] = command.order


async def kill(container: str) -> datetime:
    """When it ended."""
    await docker_soon("kill", container)
    told = docker("inspect", "--format", "{{.State.FinishedAt}}", container).strip()
    return datetime.fromisoformat(told)


def container_of(site: Watched, service: str, name: str) -> str:
    """The container whose host name stands in ``name``."""
    wanted = [service] if service == "executor" else ["decider-a", "decider-b"]
    ids = [each for one in wanted for each in site.stack.compose("ps", "-a", "-q", one).split()]
    [found] = [each for each in ids if host_of(each) in name]
    return found


async def second_start(site: Watched, job_id: str) -> JobStarted | None:
    starts = await site.started(job_id)
    return starts[1] if len(starts) > 1 else None


async def started_elsewhere(site: Watched, jobs: list[str], host: str) -> bool:
    starts = [start for job in jobs for start in await site.started(job)]
    return any(start.host != host for start in starts)


def traced(site: Watched, collector: Collector) -> Settings:
    settings = site.stack.settings("operator")
    return replace(settings, telemetry=replace(settings.telemetry, endpoint=collector.endpoint))
