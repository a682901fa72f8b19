"""Without an endpoint nothing happens: no exporter, no thread, no warning, no cost worth naming."""

import subprocess
import sys

import pytest

from penstock import telemetry
from penstock.config import load
from penstock.telemetry.collector import endpoint_of


def test_spans_are_empty_ones_and_headers_stay_as_they_are() -> None:
    headers = {"Penstock-Job": "1"}
    with telemetry.span("run f", parent=headers) as span:
        assert not span.is_recording()
        assert telemetry.inject(headers) == headers
        assert telemetry.trace_id() is None
    assert not telemetry.enabled()


def test_injecting_copies() -> None:
    headers = {"a": "b"}
    telemetry.inject(headers)["c"] = "d"
    assert headers == {"a": "b"}


def test_an_error_passes_through() -> None:
    with pytest.raises(ZeroDivisionError), telemetry.span("run f"):
        raise ZeroDivisionError


def test_broken_context_starts_a_new_story() -> None:
    assert telemetry.links({"traceparent": "rubbish"}, {}, None) == []
    assert dict(telemetry.extract({"traceparent": "00-xyz"})) == {}


def test_no_endpoint_no_import_no_thread_no_word() -> None:
    script = """
import sys, threading
from penstock import telemetry
from penstock.config import load
settings = load(environment={})
telemetry.preload(settings)
shutdown = telemetry.setup("penstock-test", "1", settings)
assert threading.active_count() == 1
assert not [name for name in sys.modules if name.startswith(("opentelemetry.sdk", "requests"))]
shutdown()
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        check=False,
        text=True,
        env={},
        timeout=20,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("setting", "environment", "posted_to"),
    [
        ("", {}, None),
        ("http://c:4318", {}, "http://c:4318/v1/traces"),
        ("http://c:4318/", {}, "http://c:4318/v1/traces"),
        ("http://c:4318/v1/traces", {}, "http://c:4318/v1/traces"),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://e:1"}, "http://e:1/v1/traces"),
        ("http://c:1", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://e:1"}, "http://c:1/v1/traces"),
        ("", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://e:1/x"}, "http://e:1/x"),
        ("http://c:1", {"OTEL_SDK_DISABLED": "true"}, None),
    ],
)
def test_where_spans_go(setting: str, environment: dict[str, str], posted_to: str | None) -> None:
    settings = load(environment={}, flags={"telemetry.endpoint": setting})
    assert endpoint_of(settings, environment) == posted_to
