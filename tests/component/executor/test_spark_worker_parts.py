"""What is known of a Spark Worker, from what its Master and its applications tell."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.config import ConfigError
from penstock.executor.spark.executors import SparkExecutor, active_tasks
from penstock.executor.spark.java import find_spark
from penstock.executor.spark.standalone import Offer, environment, read_secret
from penstock.executor.spark.workers import Daemon
from penstock.spark.master import Master, MasterAway, Resource, View, Worker
from penstock.spark.sessions import job_of, job_tag

OFFER = Offer(name="a-1", resource="etl", slots=2, memory_bytes=1 << 30)


def daemon() -> Daemon:
    return Daemon(OFFER, Path("nowhere"), pid=1)


def view(state: str, name: str = "a-1") -> View:
    resources = {"etl": Resource((f"{name}/0", f"{name}/1"))}
    return View(status="ALIVE", workers=(Worker("w", state, resources=resources),))


def test_it_is_ready_once_its_master_knows_it_and_has_nothing_for_it() -> None:
    worker = daemon()
    worker.mirror(view("ALIVE", name="a-11"), 0)
    worker.settle(10)
    assert worker.state == "starting"
    worker.mirror(view("ALIVE"), 10)
    worker.settle(10)
    assert worker.state == "starting"
    worker.settle(10.5)
    assert worker.state == "idle"


@pytest.mark.parametrize(("active", "state"), [((0,), "idle"), ((0, 2), "busy"), ((None,), "busy")])
def test_it_is_busy_where_tasks_run_or_will_at_once(
    active: tuple[int | None, ...], state: str
) -> None:
    worker = daemon()
    worker.mirror(view("ALIVE"), 0)
    worker.settle(1)
    worker.active = active
    assert worker.state == state


def test_one_that_an_application_waits_for_is_ready_when_its_executor_is() -> None:
    worker = daemon()
    worker.mirror(view("ALIVE"), 0)
    worker.executors, worker.active = (SparkExecutor(1, "app-1", "1"),), (None,)
    worker.settle(3)
    assert worker.state == "starting"
    worker.active = (0,)
    worker.settle(3.1)
    assert worker.state == "idle"


def test_an_executor_that_nobody_tells_about_is_not_waited_for_too_long() -> None:
    worker = daemon()
    worker.mirror(view("ALIVE"), 0)
    worker.executors, worker.active = (SparkExecutor(1, "app-1", "1"),), (None,)
    worker.settle(15)
    assert worker.state == "busy"


def test_it_may_end_when_the_master_gives_it_no_more() -> None:
    worker = daemon()
    worker.mirror(view("ALIVE"), 0)
    worker.settle(1)
    worker.leaving = True
    assert (worker.state, worker.is_free) == ("draining", False)
    worker.mirror(view("DECOMMISSIONED"), 1)
    assert worker.is_free


def test_one_that_its_master_forgot_is_lost_after_a_while_and_found_again() -> None:
    worker = daemon()
    worker.mirror(view("DEAD"), 0)
    assert not worker.is_lost(100)  # never there: starting takes as long as it takes
    worker.mirror(view("ALIVE"), 100)
    worker.settle(101)
    worker.mirror(View(status="ALIVE"), 101)
    assert not worker.is_lost(120)
    assert worker.is_lost(122)
    worker.mirror(view("ALIVE"), 123)
    assert not worker.is_lost(200)


class Answers(BaseHTTPRequestHandler):
    """A Master's web address that says what a test wants."""

    told: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        body = self.told.get(self.path)
        self.send_response(302 if body is None else 200)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def web() -> Iterator[tuple[Master, dict[str, Any]]]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Answers.told = {}
    yield Master(f"http://127.0.0.1:{server.server_port}/"), Answers.told
    server.shutdown()
    thread.join()
    server.server_close()


def test_who_has_tasks_is_asked_of_the_applications(
    web: tuple[Master, dict[str, Any]],
) -> None:
    master, told = web
    told["/proxy/app-1/api/v1/applications/app-1/executors"] = [
        {"id": "driver"},
        {"id": "1", "activeTasks": 0},
        {"id": "2", "activeTasks": 3},
    ]
    executors = {
        "without any": [],
        "two": [SparkExecutor(1, "app-1", "1"), SparkExecutor(2, "app-1", "2")],
        "not known yet": [SparkExecutor(3, "app-1", "3")],
        "silent application": [SparkExecutor(4, "app-2", "1")],
        "no application at all": [SparkExecutor(5, "", "")],
    }
    assert active_tasks(master, executors) == {
        "without any": (),
        "two": (0, 3),
        "not known yet": (None,),
        "silent application": (None,),
        "no application at all": (None,),
    }


def test_an_application_names_the_jobs_that_it_works_for(
    web: tuple[Master, dict[str, Any]],
) -> None:
    master, told = web
    tags = [f"SparkConnect_Session_s_Tag_{job_tag('0192-a')}", "penstock-token-7"]
    jobs = [{"jobId": 1, "jobTags": tags}, {"jobId": 2}]
    told["/proxy/app-1/api/v1/applications/app-1/jobs?status=running"] = jobs
    assert {job_of(tag) for tag in master.running_tags("app-1")} == {"0192-a", ""}


@pytest.mark.parametrize("body", [b"no json", b"[]", b'{"status": 1}', b"\xff", None])
def test_a_master_that_answers_nonsense_is_away(
    web: tuple[Master, dict[str, Any]], body: bytes | None
) -> None:
    master, told = web
    told["/json/"] = body
    with pytest.raises(MasterAway, match="/json/"):
        master.view()


def test_a_master_that_does_not_listen_is_away() -> None:
    with pytest.raises(MasterAway):
        Master("http://127.0.0.1:1").view()


def test_an_application_cannot_choose_what_is_asked(web: tuple[Master, dict[str, Any]]) -> None:
    with pytest.raises(MasterAway, match="letters"):
        web[0].stages("../../../json", "ACTIVE")


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (None, 0o600, "No such file"),
        ("long enough to be a secret", 0o644, "found mode 644, expected 600"),
        ("short", 0o600, "found 5 characters"),
        (b"\xff" * 20, 0o600, "decode"),
    ],
)
def test_a_secret_that_is_none_is_refused(
    tmp_path: Path, content: str | bytes | None, mode: int, said: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        file.chmod(mode)
    with pytest.raises(ConfigError, match=said):
        read_secret(str(file))


def test_a_secret_is_read_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("long enough to be a secret\n")
    file.chmod(0o600)
    assert read_secret(str(file)) == "long enough to be a secret"
    with pytest.raises(ConfigError, match="name a file"):
        read_secret("")


def test_executors_are_not_told_the_passwords_of_their_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_NATS__PASSWORD", "hunter2")
    told = environment(find_spark(), tmp_path, "127.0.0.1", "the cluster's secret")
    assert told["PENSTOCK_NATS__PASSWORD"] == ""
    assert told["_SPARK_AUTH_SECRET"] == "the cluster's secret"
