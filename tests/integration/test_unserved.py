"""Jobs on a queue that no pool takes: whoever dispatches, looks or watches is told."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.integration.shell import Shell
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.events.envelope import utc_now
from penstock.health.rules import judge
from penstock.health.survey import survey
from penstock.jobs import Client, job, registry
from penstock.jobs.lifecycle import State
from penstock.runtime import children
from penstock.runtime.paths import free_port
from penstock.worker.app import without_executor
from penstock.worker.loop import Worker
from penstock.worker.parts import assemble

QUEUE = "reports"
JOBS = """
from penstock.jobs import job

@job(queue="reports")
def add(a: int) -> int:
    return a
"""


@job(name="unserved.nothing", queue="reports")
def nothing() -> None: ...


@pytest.fixture
def shell(tmp_path: Path, settings: MakeSettings) -> Shell:
    made = settings()
    (tmp_path / "unserved_jobs.py").write_text(JOBS)
    (tmp_path / "penstock.toml").write_text(
        f'prefix = "{made.prefix}"\nexcluded = ["old*"]\n[nats]\nurl = "{made.nats.url}"\n'
        '[streams]\nevents_max_bytes = 16_000_000\n[jobs]\nmodules = ["unserved_jobs"]\n'
        "[pools.reports]\n"
    )
    return Shell(tmp_path)


def test_the_command_line_tells_where_jobs_wait_for_ever(shell: Shell) -> None:
    served = shell.call("job", "submit", "unserved_jobs.add", "-a", "a=1")
    stray = shell.call("job", "submit", "unserved_jobs.add", "-a", "a=1", "--queue", "reprots")
    shell.call("job", "submit", "unserved_jobs.add", "-a", "a=1", "--queue", "old")

    assert served.stderr == ""
    assert "queue reprots: no pool takes it (pools take reports)" in stray.stderr
    rows = {row["queue"]: row for row in shell.json("queue", "ls")}
    assert {name: (row["waiting"], row["pool"], row["excluded"]) for name, row in rows.items()} == {
        "reports": (1, "reports", False),
        "reprots": (1, "", False),
        "old": (1, "", True),
    }
    assert all(row["oldest_waiting_seconds"] is not None for row in rows.values())


def test_a_worker_by_hand_serves_an_excluded_queue(shell: Shell) -> None:
    shell.call("job", "submit", "unserved_jobs.add", "-a", "a=1", "--queue", "old")
    shell.call("worker", "--queue", "old", "--burst")
    [row] = [row for row in shell.json("job", "ls") if row["queue"] == "old"]
    assert row["state"] == "completed"


def test_a_queue_that_is_nowhere_is_not_paused_by_mistake(shell: Shell) -> None:
    refused = shell.call("queue", "pause", "report", code=2)
    assert "no pool serves queue 'report' and it holds no jobs; did you mean 'reports'?" in (
        refused.stderr
    )
    assert "report" not in {row["queue"] for row in shell.json("queue", "ls")}
    assert shell.text("queue", "pause", "report", "--force") == "queue report is paused"


@pytest.mark.parametrize(
    "pools",
    ["[pools.reports]\n", "[pools.x]\ncommand = ['true']\nstrategy = 'fixed'\n"],
    ids=["beside-a-pool", "beside-a-pool-of-another-system"],
)
def test_health_and_the_metrics_count_jobs_that_no_pool_takes(shell: Shell, pools: str) -> None:
    settings, port = shell.folder / "penstock.toml", free_port()
    http = f"[http]\norchestrator_port = {port}\n"
    settings.write_text(settings.read_text().replace("[pools.reports]\n", http + pools))
    stray = shell.call("job", "submit", "unserved_jobs.add", "-a", "a=1", "--queue", "x")
    assert "queue x: no pool takes it" in stray.stderr

    log = shell.folder / "orchestrator.log"
    orchestrator = children.start(
        shell.argv("orchestrator"), name="orchestrator", cwd=shell.folder, log=log
    )
    try:

        def is_counted() -> bool:
            try:
                with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=3) as page:
                    return b"penstock_health_unserved_jobs 1.0\n" in page.read()
            except OSError:
                return False

        children.wait_until(orchestrator, is_counted, 30, "the metric")
    finally:
        orchestrator.end(10)
    report = shell.call("health", code=5).stdout
    assert "queue x: 1 job, the oldest for" in report


async def test_health_names_the_queue_and_its_jobs_until_a_pool_takes_it(
    settings: MakeSettings, caplog: pytest.LogCaptureFixture
) -> None:
    made = settings(pools={"reports": {}}, excluded=["old*"])
    bus = await connect(made)
    try:
        client = Client.over(bus, made)
        with caplog.at_level(logging.WARNING, "penstock.jobs"):
            await client.dispatch_many([nothing()] * 3, queue="stray")
            await client.dispatch(nothing(), queue="old_mail")
            await client.dispatch(nothing())
        assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
            "queue stray",
            "queue old_mail",
        ]

        facts = await survey(bus, made)
        [finding] = [
            each for each in judge(facts, utc_now()).findings if each.component == "queues"
        ]
        assert finding.state == "degraded"
        assert "queue stray: 3 jobs, the oldest for" in finding.reasons[0]
        assert "queue old_mail: 1 job" in finding.reasons[1]

        repaired = settings(pools={"reports": {}, "stray": {}})
        assert [queue.name for queue in (await survey(bus, repaired)).unserved] == ["old_mail"]
    finally:
        await bus.close()


async def test_workers_of_the_default_pool_find_queues_that_no_pool_names(
    settings: MakeSettings,
) -> None:
    made = settings(pools={QUEUE: {}}, default_pool=QUEUE, excluded=["old*"])
    bus = await connect(made)
    client = Client.over(bus, made)
    registry.REGISTRY[nothing.name] = nothing
    workers_bus = await connect(made)
    worker = Worker(assemble(workers_bus, without_executor(made, QUEUE)))
    running = asyncio.create_task(worker.run())
    try:
        excluded = await client.dispatch(nothing(), queue="old_mail")
        for queues in (["b", "a", QUEUE], ["a", "c"]):  # the worker is idle before each round
            ids = [await client.dispatch(nothing(), queue=queue) for queue in queues]
            for job_id in ids:
                assert (await client.wait(job_id, 20)).state is State.COMPLETED
        assert (await client.job(excluded)).state is State.WAITING
        assert [queue.name for queue in (await survey(bus, made)).unserved] == ["old_mail"]
        held = await eventually(lambda: bus.count(bus.subjects.jobs_stream, "*.jobs.*"))
        assert set(held) == {bus.subjects.queue("old_mail")}
    finally:
        worker.stop("the test is over")
        await running
        await workers_bus.close()
        await bus.close()
