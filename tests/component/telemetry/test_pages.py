"""What a service answers to those who watch: real HTTP, as a probe or Prometheus asks."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from penstock.telemetry import metrics
from penstock.telemetry.checks import SILENT_SECONDS, Checks
from penstock.telemetry.meters import Exemplar, Meters, Reading, Spread
from penstock.telemetry.pages import MOST_OPEN, Pages, routes

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Watched:
    """A service's pages, and the clock its loop beats by."""

    def __init__(self) -> None:
        self.now = 100.0
        self.checks = Checks("decider", lambda: self.now)
        self.meters = Meters()
        self.pages = Pages("127.0.0.1", 0, routes(self.checks, self.meters))

    def get(self, path: str, accept: str = "") -> tuple[int, str]:
        asked = Request(f"http://127.0.0.1:{self.pages.port}{path}", headers={"Accept": accept})
        try:
            with urlopen(asked, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as refused:
            return refused.code, refused.read().decode()

    def said(self, path: str) -> tuple[int, Any]:
        status, text = self.get(path)
        return status, json.loads(text)


@pytest.fixture
def service() -> Iterator[Watched]:
    found = Watched()
    yield found
    found.pages.close()


def test_a_service_whose_loop_turns_is_alive(service: Watched) -> None:
    assert service.said("/healthz") == (200, {"alive": True, "reason": ""})


def test_the_metrics_have_the_path_of_the_settings() -> None:
    made = routes(Checks("decider"), Meters(), "/observe/penstock")
    assert set(made) == {"/healthz", "/readyz", "/observe/penstock"}


def test_a_stuck_loop_is_told_and_still_answered(service: Watched) -> None:
    service.now += SILENT_SECONDS + 2
    status, said = service.said("/healthz")
    assert status == 503
    assert said["reason"] == "the event loop has not turned for 12 s"
    assert service.said("/readyz")[0] == 503
    service.checks.beat()
    assert service.said("/healthz")[0] == 200


def test_ready_only_while_every_check_is_passed_and_else_it_says_why(service: Watched) -> None:
    why = {"leader": "nobody leads"}
    service.checks.require("leader", lambda: why["leader"])
    service.checks.require("broker", lambda: "")
    status, said = service.said("/readyz")
    assert status == 503
    assert said == {
        "ready": False,
        "checks": {"loop": "ok", "leader": "nobody leads", "broker": "ok"},
    }
    assert service.said("/healthz")[0] == 200, "a restart would not help"
    why["leader"] = ""
    assert service.said("/readyz")[0] == 200


def test_a_check_that_breaks_is_not_passed(service: Watched) -> None:
    service.checks.require("broken", lambda: str(1 // 0))
    assert "ZeroDivisionError" in service.said("/readyz")[1]["checks"]["broken"]


@pytest.mark.parametrize(("accept", "parse"), [("", plain), (OPENMETRICS, openmetrics)])
def test_numbers_are_scraped_in_both_formats(service: Watched, accept: str, parse: Any) -> None:
    service.meters.count(metrics.SNAPSHOTS, "emails", by=3)
    service.meters.observe(metrics.ROUND, 0.02)
    service.meters.observe(metrics.ROUND, 900)
    service.meters.read(lambda: [Reading(metrics.WAITING, 7, ('a"b\\\n',))])
    families = {family.name: family for family in parse(service.get("/metrics", accept)[1])}
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert samples["penstock_snapshots_total", "emails"] == 3
    assert samples["penstock_pool_jobs_waiting", 'a"b\\\n'] == 7
    assert samples["penstock_decider_round_seconds_bucket", "0.01"] == 0
    assert samples["penstock_decider_round_seconds_bucket", "0.025"] == 1
    assert samples["penstock_decider_round_seconds_bucket", "+Inf"] == 2
    assert samples[("penstock_decider_round_seconds_sum",)] == 900.02
    assert samples[("process_resident_memory_bytes",)] > 0


def test_exemplars_name_the_trace(service: Watched) -> None:
    found = [None] * 16 + [Exemplar("ab" * 16, "cd" * 8, 700.0, 1e9)]
    spread = Spread(metrics.PICKUP, [1] * 17, 800.0, ("emails",), found)
    service.meters.read(lambda: [spread])
    text = service.get("/metrics", OPENMETRICS)[1]
    (family,) = [f for f in openmetrics(text) if f.name == "penstock_job_pickup_seconds"]
    (exemplar,) = [s.exemplar for s in family.samples if s.labels.get("le") == "+Inf"]
    assert exemplar.labels == {"trace_id": "ab" * 16, "span_id": "cd" * 8}
    assert exemplar.value == 700


def test_a_source_that_breaks_takes_nothing_else_along(
    service: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    service.meters.read(lambda: [Reading(metrics.LEADING, 1 / 0)])
    service.meters.count(metrics.COMMANDS)
    for _ in range(3):
        text = service.get("/metrics")[1]
    assert "penstock_commands_total 1.0" in text
    assert "penstock_service_broken_readings_total 3.0" in text
    assert len(caplog.records) == 1


def test_slow_readers_lock_nobody_out(service: Watched) -> None:
    with ExitStack() as stack:
        for _ in range(3 * MOST_OPEN):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", service.pages.port)))
            slow.sendall(b"GET /metr")
        assert service.get("/healthz")[0] == 200


def test_no_other_page(service: Watched) -> None:
    assert service.get("/../etc/passwd") == (404, "expected one of /healthz, /readyz, /metrics\n")


def test_a_taken_port_is_an_error_and_a_closed_one_is_free(service: Watched) -> None:
    with pytest.raises(OSError, match="in use"):
        Pages("127.0.0.1", service.pages.port, {})
    service.pages.close()
    Pages("127.0.0.1", service.pages.port, {}).close()
