"""How the steps of workflows are stored: as those of graphs, which older versions stored, too."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.declared.orders import TOML

from penstock.events.condition import Condition, Reference
from penstock.events.envelope import MalformedEvent, encode
from penstock.events.graph import GRAPH_EVENTS, GraphStarted, GraphStep, Rule
from penstock.jobs.workflows.declared import reading
from penstock.jobs.workflows.declared.planning import plan

OF_AN_OLDER_VERSION = (
    b'{"type":"GraphStarted","id":"i","at":"2026-11-20T00:00:00Z","source":"s","correlation_id":'
    b'"g","graph_id":"g","steps":[{"name":"a","payload":"gA=="},'
    b'{"name":"b","payload":"gA==","needs":[0],"takes":{"x":0}}]}'
)


def started(*steps: GraphStep) -> GraphStarted:
    return GraphStarted(graph_id="g", source="s", correlation_id="g", steps=steps)


def test_a_graph_of_an_older_version_is_read() -> None:
    event: Any = GRAPH_EVENTS.decode(OF_AN_OLDER_VERSION)
    assert [step.rule for step in event.steps] == [Rule.NONE_FAILED] * 2
    assert event.steps[1].when is None


def test_a_plain_graph_is_stored_as_before() -> None:
    encoded = msgspec.json.decode(encode(started(GraphStep(name="a", payload=b"\x80"))))
    assert encoded["steps"] == [{"name": "a", "payload": "gA=="}]


def test_all_that_a_definition_makes_is_stored_and_read() -> None:
    steps = [planned.step for planned in plan(reading.from_toml(TOML))]
    event = started(*steps)
    assert GRAPH_EVENTS.decode(encode(event)) == event


LATER = ("results", 1)


@pytest.mark.parametrize(
    "step",
    [
        GraphStep(name="a", payload=b"", when=Condition(exists=LATER)),
        GraphStep(name="a", payload=b"", when=Condition(eq=(Reference(("results", "a")), 1))),
        GraphStep(name="a", payload=b"", when=Condition(exists=("environment", "home"))),
        GraphStep(name="a", payload=b"", reads={"x": LATER}),
        GraphStep(name="a", payload=b"", reads={"x": ("results", -1)}),
        GraphStep(name="a", payload=b"", compensates=0),
    ],
)
def test_steps_that_no_client_makes_are_refused(step: GraphStep) -> None:
    with pytest.raises(ValueError, match="itself or a later step"):
        started(step)


def test_what_is_forged_is_malformed() -> None:
    for field in (b'"rule":"never"', b'"when":{"eval":"1"}', b'"reads":{"x":["results",7]}'):
        with pytest.raises(MalformedEvent):
            GRAPH_EVENTS.decode(OF_AN_OLDER_VERSION.replace(b'"needs":[0]', field))
