"""Columns of the lake are the fields of all events."""

from __future__ import annotations

from penstock.events.catalogue import LOGGED
from penstock.events.envelope import Event
from penstock.pipeline.core.columns import column_name, columns, shapes


class Rose(Event, frozen=True, kw_only=True, tag=True):
    level: int
    day: str = ""
    near: tuple[str, ...] = ()


class Fell(Event, frozen=True, kw_only=True, tag=True):
    level: str
    share: float | None = 0.5


def test_fields_of_all_events_by_name() -> None:
    found = columns(shapes([Rose, Fell]))
    assert found["at"] == "timestamp"
    assert found["share"] == "double"
    assert found["near"] == "string"  # nested: JSON text
    assert found["level"] == "string"  # they disagree
    assert found[column_name("day")] == "string"
    assert column_name("day") == "day_"  # the lake's own column


def test_a_field_says_how_it_is_read_and_what_it_is_when_left_out() -> None:
    rose, fell = ({f.name: f for f in fields} for fields in shapes([Rose, Fell]).values())
    assert rose["level"].kind == "json"
    assert (fell["level"].kind, fell["share"].default) == ("string", 0.5)
    assert [name for name, field in rose.items() if field.required] == ["id", "at"]


def test_every_event_of_the_log_has_its_envelope() -> None:
    found = columns(shapes(LOGGED))
    assert {"type", "id", "at", "source", "causation_id", "correlation_id"} <= set(found)
