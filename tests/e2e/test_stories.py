"""A job's story and a scaling's story, each one trace across processes, at a real collector."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.integration.otlp import Collector, Received
from tests.integration.test_up import running_up

JOBS = """
from penstock.jobs import Context, job

@job(queue="lake")
def rows(context: Context, count: int) -> int:
    return context.spark.range(count).count()
"""
CONFIG = """
[streams]
events_max_bytes = 16_000_000
[jobs]
modules = ["story_jobs"]
[host]
name = "story-host"
reserve_cpu_cores = 0
reserve_memory_bytes = 0
max_cpu_share = 1
[spark]
measure_cost = true
[telemetry]
endpoint = "{endpoint}"
[pools.lake]
sla_seconds = 10
min_workers = 0
max_workers = 1
"""

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Collector, str]]:
    """A collector that heard one PySpark job run by a pool that had no worker; and the job's id."""
    folder = tmp_path_factory.mktemp("story")
    with Collector() as collector:
        (folder / "penstock.toml").write_text(CONFIG.format(endpoint=collector.endpoint))
        (folder / "story_jobs.py").write_text(JOBS)
        with running_up(folder, 20.0) as up:
            up.until_ready()
            done = up.shell.json("job", "submit", "story_jobs.rows", "-a", "count=1000", "--wait")
            assert done["result"] == 1000, done
            completed = done["timeline"][-1]
            assert completed["spark_cost"]["cpu_seconds"] > 0, completed
            collector.wait_for("run", within=15)
            collector.wait_for("first job", within=15)
            yield collector, done["job"]["id"]


def test_a_jobs_story_is_dispatch_run_spark(told: tuple[Collector, str]) -> None:
    collector, job_id = told
    dispatch = collector.wait_for("dispatch")
    spark = collector.wait_for("spark session")
    run = collector.wait_for(lambda span: span.span_id == spark.parent_id)

    assert dispatch.name == "dispatch lake"
    assert dispatch.parent_id == ""
    assert run.name == "run story_jobs.rows"
    assert run.parent_id == dispatch.span_id
    assert (dispatch.trace_id, dispatch.span_id) in run.links
    assert {dispatch.trace_id} == {run.trace_id, spark.trace_id}
    assert run.attributes["messaging.message.id"] == job_id
    assert run.attributes["penstock.job.wait_seconds"] > 0
    assert dispatch.service != run.service


def test_a_scalings_story_is_snapshot_decision_command_spawn_first_job(
    told: tuple[Collector, str],
) -> None:
    collector, job_id = told
    first = collector.wait_for("first job")
    story = _ancestors(collector, first)

    assert [span.name.split()[0] for span in story] == [
        "first", "spawn", "command", "decide", "measure",
    ]  # fmt: skip
    assert len({span.trace_id for span in story}) == 1
    assert [span.service for span in story] == [
        "penstock-worker", "penstock-executor", "penstock-decider", "penstock-decider",
        "penstock-metrics",
    ]  # fmt: skip
    decide, measure = story[3], story[4]
    assert (measure.trace_id, measure.span_id) in decide.links
    assert first.attributes["penstock.job.id"] == job_id
    run = collector.wait_for("run")
    assert any(trace_id == run.trace_id for trace_id, _ in first.links)


def _ancestors(collector: Collector, span: Received) -> list[Received]:
    """A span, its parent, its parent's parent, … up to the root."""
    found = [span]
    while parent_id := found[-1].parent_id:
        found.append(collector.wait_for(partial(_is, parent_id)))
    return found


def _is(span_id: str, span: Received) -> bool:
    return span.span_id == span_id
