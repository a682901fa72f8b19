"""A worker's Spark: real Java, one server for the module."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration import spark_probe
from tests.integration.otlp import Collector
from tests.integration.spark_host import SparkHost, spark_host
from tests.waiting import eventually

from penstock import telemetry
from penstock.config import load
from penstock.config.spark import Spark
from penstock.jobs.sink import write_parquet
from penstock.spark.sessions import job_tag
from penstock.telemetry import names
from penstock.worker.spark.lease import SparkLease, SparkUnavailable

pytestmark = pytest.mark.spark

UI: list[str] = []
"""Where the module's server tells what it does."""


@pytest.fixture(scope="module")
def host() -> Iterator[SparkHost]:
    with spark_host("--ui", conf=json.dumps({"spark.secret.x": "hunter2"})) as running:
        first = running.lease()
        first.session("first", 1)
        assert first._line is not None
        UI[:] = [first._line.ui]
        first.close()
        yield running


@pytest.fixture
def lease(host: SparkHost) -> Iterator[SparkLease]:
    made = host.lease()
    yield made
    made.close()


def test_a_job_gets_answers(lease: SparkLease) -> None:
    spark = lease.session("a", 7)
    assert spark.range(5).selectExpr("sum(id)").collect()[0][0] == 10
    assert lease.is_open


def test_the_session_is_kept_for_the_next_job_with_that_jobs_tags(lease: SparkLease) -> None:
    first = lease.session("a", 7)
    assert first.getTags() == {"penstock-job-a", "penstock-token-7"}
    lease.release("a")
    second = lease.session("b", 8)
    assert second is first
    assert second.getTags() == {"penstock-job-b", "penstock-token-8"}


def test_the_spark_ui_names_the_job_for_work_from_any_of_its_threads(lease: SparkLease) -> None:
    spark = lease.session("named", 12)
    spark.range(3).count()
    in_thread(lambda: spark.range(4).count())
    tagged = [tags for tags in job_tags() if any(tag.endswith(job_tag("named")) for tag in tags)]
    assert len(tagged) >= 2
    assert all(any(tag.endswith("penstock-token-12") for tag in tags) for tags in tagged)


def test_after_its_end_a_jobs_name_is_on_nothing_more(lease: SparkLease) -> None:
    spark = lease.session("gone", 1)
    lease.release("gone")
    before = len(job_tags())
    in_thread(lambda: spark.range(3).count())
    fresh = job_tags()[before:]
    assert fresh
    assert not any(tag.endswith(job_tag("gone")) for tags in fresh for tag in tags)


def test_a_late_release_does_not_take_the_next_jobs_session(lease: SparkLease) -> None:
    lease.session("a", 1)
    spark = lease.session("b", 2)  # the job thread was quicker than the loop
    lease.release("a")
    lease.interrupt("a")
    assert spark.range(2).count() == 2
    assert spark.getTags() == {"penstock-job-b", "penstock-token-2"}


async def test_cancelling_stops_work_that_would_take_years(lease: SparkLease) -> None:
    spark = lease.session("long", 1)
    ended: list[BaseException] = []

    def work() -> None:
        try:
            spark.range(10**15).selectExpr("sum(id % 7)").collect()
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    await eventually(lambda: running(job_tag("long")), within=20)
    lease.interrupt("long")
    thread.join(20)
    assert not thread.is_alive()
    assert "CANCELED" in str(ended[0])
    await eventually(lambda: not running(job_tag("long")))
    assert spark.range(2).count() == 2  # the session goes on


_DOOMED = """
import sys
from penstock.config.spark import Spark
from penstock.jobs.sink import write_parquet
from penstock.worker.spark.lease import SparkLease
lease = SparkLease(sys.argv[1], Spark())  # held as long as this process lives
spark = lease.session("orphan", 1)
spark.range(10**15).selectExpr("sum(id % 7)").collect()
"""


async def test_the_work_of_a_killed_worker_is_ended(host: SparkHost, lease: SparkLease) -> None:
    mine = lease.session("alive", 1)
    doomed = work_that_is_left(host)
    try:
        await eventually(lambda: running(job_tag("orphan")), within=30)
    finally:
        doomed.kill()
    doomed.wait(20)
    await eventually(lambda: not running(job_tag("orphan")), within=20, what=host.log)
    assert mine.range(2).count() == 2  # another worker's session is left alone


async def test_a_worker_that_ends_well_ends_its_session_itself(host: SparkHost) -> None:
    lease = host.lease()
    lease.session("tidy", 1).range(2).count()
    before = host.log.count("a worker died")
    lease.close()
    other = host.lease()
    other.session("next", 1)  # answered after what came before it
    other.close()
    assert host.log.count("a worker died") == before


async def test_work_that_gets_on_is_a_sign_of_life(lease: SparkLease) -> None:
    beats: list[float] = []
    spark = lease.session("lively", 1, lambda: beats.append(time.monotonic()))
    spark.range(5).count()
    assert beats
    lease.release("lively")
    heard = len(beats)
    spark.range(5).count()
    assert len(beats) == heard


def test_what_an_attempt_cost_is_told_by_its_token(lease: SparkLease) -> None:
    spark = lease.session("costly", 4711)
    spark.range(200_000).selectExpr("id % 100 as k").groupBy("k").count().collect()
    cost = lease.cost(4711)
    assert cost is not None
    assert cost.cpu_seconds > 0
    assert min(cost.shuffle_write_bytes, cost.shuffle_read_bytes, cost.peak_memory_bytes) > 0
    assert cost.stages >= 2
    untouched = lease.cost(471)
    assert untouched is not None
    assert untouched.stages == 0


def test_an_attempt_writes_its_output_once_and_readers_see_nothing_half(
    lease: SparkLease, tmp_path: Path
) -> None:
    spark = lease.session("writer", 1)
    history: dict[str, str] = {}
    target = tmp_path / "orders" / "day=2026-11-20"
    target.parent.mkdir()
    first = write_parquet(Attempt(1, history), spark.range(10), target)  # type: ignore[arg-type]
    again = write_parquet(Attempt(2, history), spark.range(99), target)  # type: ignore[arg-type]
    assert (first, again) == (True, False)

    (target.parent / ".day=2026-11-21.j.3").mkdir()  # another attempt is at it
    spark.range(7).write.parquet(str(target.parent / ".day=2026-11-21.j.3" / "half"))
    table = spark.read.parquet(str(target.parent))
    assert table.columns == ["id", "day"]
    assert table.count() == 10


def test_a_jobs_trace_goes_on_into_its_queries(host: SparkHost) -> None:
    with Collector() as collector:
        flags = {"telemetry.endpoint": collector.endpoint}
        shutdown = telemetry.setup("penstock-worker", "1", load(environment={}, flags=flags))
        lease = host.lease()
        with telemetry.span(names.run("f")):
            trace = telemetry.trace_id()
            spark = lease.session("traced", 3)
            spark.range(3).count()
            with pytest.raises(Exception, match="overflow"):
                spark.range(10).selectExpr("(id + 9223372036854775800L) * 2").collect()
        lease.close()
        shutdown()
        run, session = collector.wait_for("run"), collector.wait_for("spark session")
        good, bad = collector.wait_for_all("spark query", count=2)
    assert {session.parent_id, good.parent_id, bad.parent_id} == {run.span_id}
    assert [good.failed, bad.failed] == [False, True]
    assert session.attributes[names.SPARK_SESSION] == good.attributes[names.SPARK_SESSION]
    assert set(good.attributes[names.SPARK_TAGS]) == {
        "penstock-job-traced",
        "penstock-token-3",
        f"penstock-trace-{trace}",
    }
    assert any(f"penstock-trace-{trace}" in tag for tags in job_tags() for tag in tags)


def test_a_job_that_stops_the_session_does_not_spoil_the_next(lease: SparkLease) -> None:
    lease.session("rude", 1).stop()
    lease.release("rude")
    assert lease.session("next", 2).range(2).count() == 2


def test_nobody_else_gets_in_and_nothing_is_told_on_a_command_line(
    host: SparkHost, lease: SparkLease
) -> None:
    remote = str(lease.session("a", 1).client._builder.url.geturl())
    token = remote.partition("token=")[2].partition(";")[0]
    assert len(token) > 30
    server = host.server()
    assert server is not None
    told = " ".join([*server.cmdline(), *psutil.Process(host.keeper.pid).cmdline(), host.log])
    assert token not in told
    assert "hunter2" not in told
    assert token not in (host.run_dir / "spark" / "server.log").read_text("utf-8")
    assert stat.S_IMODE((host.run_dir / "spark.sock").stat().st_mode) == 0o600
    stranger = SparkLease(
        host.run_dir, Spark(remote=remote.replace(token, "guess").replace("http", "sc"))
    )
    with pytest.raises(Exception, match="authentication"):
        stranger.session("a", 1).range(1).collect()
    stranger.close()


def test_the_server_is_on_loopback_only(host: SparkHost, lease: SparkLease) -> None:
    lease.session("a", 1)
    server = host.server()
    assert server is not None
    listening = [s.laddr for s in server.net_connections("tcp") if s.status == psutil.CONN_LISTEN]
    assert {address.ip for address in listening} <= {"127.0.0.1", "::ffff:127.0.0.1"}


def test_the_driver_answers_no_other_process(host: SparkHost, lease: SparkLease) -> None:
    spark = lease.session("a", 1)
    server = host.server()
    assert server is not None
    reached = spark_probe.answers(server)
    assert len(reached) >= 3  # Connect, the driver's RPC, its block manager
    assert "answered" not in reached.values()
    assert spark.range(2).count() == 2


def test_a_second_keeper_leaves_the_first_alone(host: SparkHost) -> None:
    second = subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock.executor.spark.supervisor",
            "--run-dir",
            str(host.run_dir),
        ],
        check=False,
        timeout=20,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert second.returncode == 0
    assert "another Spark supervisor" in second.stderr
    assert (host.run_dir / "spark.sock").exists()


def test_a_killed_server_is_replaced_for_the_next_job(host: SparkHost, lease: SparkLease) -> None:
    spark = lease.session("hit", 1)
    assert spark.range(2).count() == 2
    server = host.server()
    assert server is not None
    began = time.monotonic()
    server.kill()
    with pytest.raises(Exception):  # noqa: B017 - whatever Spark's client says
        spark.range(10).count()
    assert time.monotonic() - began < 8  # not Spark's ten minutes
    lease.release("hit")
    again = lease.session("next", 2)
    assert again is not spark
    assert again.range(3).count() == 3
    assert again.getTags() == {"penstock-job-next", "penstock-token-2"}
    replaced = host.server()
    assert replaced is not None
    assert replaced.pid != server.pid


def test_without_a_keeper_the_error_says_what_to_do(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.worker.spark.lease.SUPERVISOR_SECONDS", 0.3)
    with pytest.raises(
        SparkUnavailable, match=r"is `executor` running on this host\? Else set spark.remote"
    ):
        SparkLease(tmp_path, Spark()).session("a", 1)


def work_that_is_left(host: SparkHost) -> subprocess.Popen[bytes]:
    """A process with a lease whose query takes for ever."""
    return subprocess.Popen([sys.executable, "-c", _DOOMED, str(host.run_dir)])


class Attempt:
    """An attempt as the sink sees it; commits go to a history that all share."""

    job_id = "j"

    def __init__(self, token: int, history: dict[str, str]) -> None:
        self.fencing_token, self._history = token, history

    def committed(self, name: str) -> str | None:
        return self._history.get(name)

    def commit(self, name: str, location: str) -> str:
        return self._history.setdefault(name, location)


def job_tags() -> list[list[str]]:
    """Tags of each Spark job, oldest first, as the Spark UI's API shows them."""
    return [job["jobTags"] for job in sorted(spark_jobs(), key=lambda job: job["jobId"])]


def running(tag: str) -> bool:
    return any(
        job["status"] == "RUNNING" and any(each.endswith(tag) for each in job["jobTags"])
        for job in spark_jobs()
    )


def spark_jobs() -> list[dict[str, Any]]:
    base = f"{UI[0]}/api/v1/applications"
    application = read(base)[0]["id"]
    found: list[dict[str, Any]] = read(f"{base}/{application}/jobs")
    return found


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def in_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
