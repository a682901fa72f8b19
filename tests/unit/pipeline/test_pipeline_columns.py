"""Columns of the lake are the fields of all events."""

from __future__ import annotations

from penstock.cli.catalogue import LOGGED
from penstock.events.envelope import Event
from penstock.pipeline.core.columns import column_name, event_columns


class Rose(Event, frozen=True, kw_only=True, tag=True):
    level: int
    day: str = ""
    near: tuple[str, ...] = ()


class Fell(Event, frozen=True, kw_only=True, tag=True):
    level: str
    share: float | None = None


def test_fields_of_all_events_by_name() -> None:
    found = event_columns([Rose, Fell])
    assert found["at"] == "timestamp"
    assert found["share"] == "double"
    assert found["near"] == "string"  # nested: JSON text
    assert found["level"] == "string"  # they disagree
    assert column_name("day") == "day_"  # the lake's own column


def test_every_event_of_the_log_has_its_envelope() -> None:
    found = event_columns(LOGGED)
    assert {"type", "id", "at", "source", "causation_id", "correlation_id"} <= set(found)
