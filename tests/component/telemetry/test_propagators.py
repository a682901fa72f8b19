"""The trace context in other formats than W3C's, and the names that are settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import propagate, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from penstock import telemetry
from penstock.config import ConfigError
from penstock.config.extras import ExtraMissing
from penstock.config.load import NoBrokerKnown, check
from penstock.jobs import Client
from penstock.telemetry import propagation

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
CURRENT = NonRecordingSpan(SpanContext(TRACE, SPAN, False, TraceFlags(1)))


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = propagate.get_global_textmap()
    yield
    propagation.use((), {})
    propagate.set_global_textmap(before)


def trace_of(headers: dict[str, str]) -> int:
    return trace.get_current_span(telemetry.extract(headers)).get_span_context().trace_id


@pytest.mark.parametrize(
    ("name", "header"),
    [("b3", "b3"), ("b3multi", "x-b3-traceid"), ("jaeger", "uber-trace-id")],
)
def test_a_format_stands_beside_the_w3c_header_and_is_read_where_that_is_missing(
    name: str, header: str
) -> None:
    propagation.use((name,), {})
    headers = telemetry.inject({}, CURRENT)
    assert {"traceparent", header} <= {key.lower() for key in headers}
    foreign = {key: value for key, value in headers.items() if key != "traceparent"}
    assert propagation.is_foreign(foreign)
    assert trace_of(foreign) == TRACE
    assert not propagation.is_foreign(headers)


def test_a_header_that_is_too_long_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    propagation.use(("baggage",), {})
    parent = f"00-{TRACE:032x}-{SPAN:016x}-01"
    assert trace_of({"traceparent": parent, "baggage": "x" * 800_000}) == TRACE
    assert not caplog.records


def test_of_two_that_differ_the_w3c_header_counts() -> None:
    propagation.use(("b3",), {})
    headers = telemetry.inject({}, CURRENT) | {"b3": f"{1:032x}-{1:016x}-1"}
    assert trace_of(headers) == TRACE


def test_without_a_setting_messages_carry_the_w3c_header_alone() -> None:
    propagation.use((), {})
    assert set(telemetry.inject({}, CURRENT)) == {"traceparent"}
    assert not propagation.is_foreign({"b3": f"{TRACE:032x}-{SPAN:016x}-1"})


def test_the_standard_variable_is_read_where_no_setting_is_made() -> None:
    propagation.use((), {"OTEL_PROPAGATORS": "tracecontext, b3"})
    assert "b3" in telemetry.inject({}, CURRENT)
    propagation.use((), {"OTEL_PROPAGATORS": "none"})
    assert "b3" not in telemetry.inject({}, CURRENT)


def test_calls_that_jobs_make_carry_the_formats_that_are_named_and_no_others() -> None:
    propagation.use(("b3",), {})
    sent: dict[str, str] = {}
    propagate.inject(sent, trace.set_span_in_context(CURRENT))
    assert set(sent) == {"b3"}


def test_a_broken_header_of_another_format_starts_a_new_trace() -> None:
    propagation.use(("b3", "jaeger"), {})
    assert trace_of({"b3": "x" * 1000, "uber-trace-id": "::::"}) == 0


def test_a_format_whose_library_is_missing_is_named_with_what_to_install() -> None:
    with pytest.raises(ExtraMissing, match="opentelemetry-propagator-xray"):
        propagation.use((), {"OTEL_PROPAGATORS": "xray"})


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("telemetry", "propagators", ["zipkin"]),
        ("telemetry", "service_name", "a b"),
        ("http", "metrics_path", "metrics"),
        ("http", "metrics_path", "/healthz"),
    ],
)
def test_settings_that_cannot_be_are_refused(section: str, name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        check({section: {name: value}})


async def test_a_client_sends_them_and_leaves_the_programs_own_propagator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where no broker is known: nothing is sent
    before = propagate.get_global_textmap()
    with pytest.raises(NoBrokerKnown):
        async with Client.connect(check({"telemetry": {"propagators": ["b3"]}})):
            pass
    assert "b3" in telemetry.inject({}, CURRENT)
    assert propagate.get_global_textmap() is before
