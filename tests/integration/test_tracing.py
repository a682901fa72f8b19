"""Spans over real HTTP, from processes that must not notice whether anybody listens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.integration.otlp import Collector
from tests.waiting import eventually

from penstock import telemetry
from penstock.config import Settings, load
from penstock.telemetry import SpanKind, names


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans are sent every 50 ms in place of each second."""
    monkeypatch.setattr("penstock.telemetry.otlp.posting.FLUSH_MILLISECONDS", 50)


@contextmanager
def tracing(endpoint: str, share: float = 1.0, service: str = "penstock-test") -> Iterator[None]:
    shutdown = telemetry.setup(service, "one", settings(endpoint, share))
    try:
        yield
    finally:
        shutdown()


def settings(endpoint: str, share: float = 1.0) -> Settings:
    flags = {"telemetry.endpoint": endpoint, "telemetry.sample_share": share}
    return load(environment={}, flags=flags)


def test_a_span_arrives_with_all_that_was_said_about_it() -> None:
    with Collector() as collector, tracing(collector.endpoint):
        with telemetry.span(
            names.dispatch("reports"),
            kind=SpanKind.PRODUCER,
            attributes={names.MESSAGING_SYSTEM: names.NATS, names.ATTEMPT: 2},
        ):
            pass
        got = collector.wait_for("dispatch reports")
    assert (got.kind, got.parent_id, got.failed) == ("producer", "", False)
    assert got.attributes == {"messaging.system": "nats", "penstock.job.attempt": 2}
    assert got.service == "penstock-test"
    assert got.resource["service.instance.id"] == "one"


def test_a_message_carries_the_story_to_where_it_is_handled() -> None:
    with Collector() as collector, tracing(collector.endpoint):
        with telemetry.span(names.dispatch("reports")):
            headers = telemetry.inject({"Penstock-Job": "7"})
        with telemetry.span(
            names.run("f"), parent=headers, kind=SpanKind.CONSUMER, links=telemetry.links(headers)
        ):
            story = telemetry.trace_id()
        dispatch, run = collector.wait_for("dispatch"), collector.wait_for("run")
    assert headers["Penstock-Job"] == "7"
    assert run.trace_id == dispatch.trace_id == story
    assert run.parent_id == dispatch.span_id
    assert run.links == ((dispatch.trace_id, dispatch.span_id),)


def test_handling_a_message_is_its_child_with_children_and_writings_of_its_own() -> None:
    shape = telemetry.Shape(
        names.run("f"), SpanKind.CONSUMER, {names.FUNCTION: "f"}, (names.ATTEMPT,)
    )
    with Collector() as collector, tracing(collector.endpoint):
        with telemetry.span(names.dispatch("reports")):
            headers = telemetry.inject()
        with telemetry.handling(shape, headers, (1,)), telemetry.span(names.spark("query")):
            pass
        with telemetry.handling(shape, headers, (2,)) as span:
            span.set_attribute("rows", 3)
        with pytest.raises(KeyError), telemetry.handling(shape, headers, (3,)):
            raise KeyError("missing")
        dispatch, query = collector.wait_for("dispatch"), collector.wait_for("spark")
        plain, written, failed = (
            collector.wait_for(lambda got, n=n: got.attributes.get(names.ATTEMPT) == n)
            for n in (1, 2, 3)
        )
    for run in (plain, written, failed):
        assert (run.name, run.kind, run.service) == ("run f", "consumer", "penstock-test")
        assert (run.parent_id, run.trace_id) == (dispatch.span_id, dispatch.trace_id)
        assert run.links == ((dispatch.trace_id, dispatch.span_id),)
    assert query.parent_id == plain.span_id
    assert plain.attributes == {names.FUNCTION: "f", names.ATTEMPT: 1}
    assert written.attributes["rows"] == 3
    assert (failed.failed, failed.attributes["error.type"]) == (True, "builtins.KeyError")


def test_a_message_without_a_story_starts_its_own_even_inside_another() -> None:
    with Collector() as collector, tracing(collector.endpoint):
        with telemetry.span("outer"), telemetry.span("inner", parent={}):
            pass
        inner, outer = collector.wait_for("inner"), collector.wait_for("outer")
    assert inner.parent_id == ""
    assert inner.trace_id != outer.trace_id


def test_a_span_that_is_ended_elsewhere_and_began_earlier() -> None:
    with Collector() as collector, tracing(collector.endpoint):
        spawn = telemetry.start(names.spawn("reports"), started_at=time.time() - 3)
        headers = telemetry.inject(span=spawn)
        threading.Thread(target=spawn.end).start()
        with telemetry.span(names.first_job("reports"), parent=headers):
            pass
        got, child = collector.wait_for("spawn"), collector.wait_for("first job")
    assert 3 <= got.seconds < 10
    assert child.parent_id == got.span_id


def test_an_exception_marks_the_span_without_its_traceback() -> None:
    with Collector() as collector, tracing(collector.endpoint):
        with pytest.raises(KeyError), telemetry.span(names.run("f")):
            raise KeyError("missing")
        got = collector.wait_for("run")
    assert got.failed
    assert got.attributes["error.type"] == "builtins.KeyError"


def test_a_story_is_sampled_whole() -> None:
    with Collector() as collector:
        with tracing(collector.endpoint, share=0.0), telemetry.span("never"):
            unsampled = telemetry.inject()
        with tracing(collector.endpoint, share=1.0):
            with telemetry.span("also never", parent=unsampled):
                pass
            with telemetry.span("always"):
                pass
            collector.wait_for("always")
        assert [span.name for span in collector.spans] == ["always"]


def test_four_processes_one_story() -> None:
    """Each takes the headers of the one before on its standard input and passes its own on."""
    script = """
import json, sys
from penstock import telemetry
from penstock.config import load
shutdown = telemetry.setup(sys.argv[2], "1", load(environment={}))
with telemetry.span(sys.argv[1], parent=json.load(sys.stdin)):
    json.dump(telemetry.inject(), sys.stdout)
shutdown()
"""
    steps = [
        (names.measure("p"), "penstock-metrics"),
        (names.decide("p"), "penstock-decider"),
        (names.command("h"), "penstock-executor"),
        (names.first_job("p"), "penstock-worker"),
    ]
    with Collector() as collector:
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
        headers = "{}"
        for name, service in steps:
            headers = subprocess.run(
                [sys.executable, "-c", script, name, service],
                input=headers,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
                timeout=30,
                check=True,
            ).stdout
        got = [collector.wait_for(name) for name, _ in steps]
    assert len({span.trace_id for span in got}) == 1
    assert [span.parent_id for span in got] == ["", *(span.span_id for span in got[:-1])]
    assert [span.service for span in got] == [service for _, service in steps]
    assert json.loads(headers)["traceparent"].startswith(f"00-{got[0].trace_id}-")


def test_a_forked_child_traces_on_its_own() -> None:
    """The warm parent preloads; setup comes after the fork: the child has its own thread."""
    with Collector() as collector:
        telemetry.preload(settings(collector.endpoint))
        child = os.fork()
        if child == 0:  # pragma: no cover - the child's life ends here
            with tracing(collector.endpoint, service="penstock-worker"), telemetry.span("run f"):
                pass
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert collector.wait_for("run").service == "penstock-worker"


def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    with Collector() as gone:
        endpoint = gone.endpoint
    began = time.monotonic()
    with tracing(endpoint):
        for _ in range(1000):
            with telemetry.span("lost"):
                pass
        worked = time.monotonic() - began
    assert worked < 2
    assert time.monotonic() - began < worked + 3
    told = [record.getMessage() for record in caplog.records]
    assert all("does not respond" in each for each in told)
    assert len(told) == len(set(told)), "once for the spans, once for the lines about that"


def test_the_collector_hangs() -> None:
    shape = telemetry.Shape("held", SpanKind.CONSUMER, {}, ())
    with Collector(hang=True) as collector:
        began = time.monotonic()
        with tracing(collector.endpoint):
            for _ in range(20_000):  # more than the queue holds
                with telemetry.handling(shape, {}, ()):
                    pass
            worked = time.monotonic() - began
        waited = time.monotonic() - began - worked
    assert worked < 10
    assert waited < 3


async def test_a_collector_that_comes_back_is_used_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="penstock.telemetry")
    with Collector(answer=400) as collector, tracing(collector.endpoint):
        telemetry.start("refused").end()
        await eventually(lambda: f"{collector.endpoint}/v1/traces does not" in caplog.text)
        collector.answer = 200
        telemetry.start("taken").end()
        collector.wait_for("taken")
        await eventually(lambda: "responds again" in caplog.text)


def test_no_password_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with tracing("http://someone:hunter2@127.0.0.1:1"):
        telemetry.start("lost").end()
    assert "127.0.0.1:1" in caplog.text
    assert "hunter2" not in caplog.text
