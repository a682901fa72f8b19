"""When a job counts as stuck: each part of the score, and how often it must be too high."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.executor.making import HOST, Played, claim, fleet, of, report

from penstock.config.hosts import Stuck
from penstock.events.worker import QueueReport, WorkerStopped
from penstock.executor.core import facts
from penstock.executor.core.instruction import GiveBack, Kill, Start
from penstock.executor.core.stuck import IDLE, Case, Usual, Vital, score

SETTINGS = Stuck()
WELL = Vital(
    silent_seconds=0, running_seconds=0, expected_seconds=100,
    memory_bytes=100, first_memory_bytes=100, process="running",
)  # fmt: skip


def total(**fields: Any) -> float:
    return score(replace(WELL, **fields), SETTINGS).score


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 0.0),
        ({"silent_seconds": 150}, 0.2),
        ({"silent_seconds": 9_000}, 0.4),
        ({"running_seconds": 100}, 0.0),
        ({"running_seconds": 200}, 0.15),
        ({"running_seconds": 9_000}, 0.3),
        ({"memory_bytes": 109}, 0.0),
        ({"memory_bytes": 155}, 0.075),
        ({"memory_bytes": 900}, 0.15),
        ({"memory_bytes": 50}, 0.0),
        ({"process": IDLE}, 0.075),
        ({"process": "stopped"}, 0.15),
        ({"process": "a state to come"}, 0.0),
        ({"silent_seconds": 300, "running_seconds": 300}, 0.7),
        ({"silent_seconds": 300, "running_seconds": 300, "process": IDLE}, 0.775),
    ],
)
def test_a_score(fields: dict[str, Any], expected: float) -> None:
    assert total(**fields) == pytest.approx(expected)


def test_the_weights_are_one_together() -> None:
    worst = total(silent_seconds=1e9, running_seconds=1e9, memory_bytes=10**9, process="stopped")
    assert worst == pytest.approx(1.0)


seconds = st.floats(0, 1e6)


@given(silent=seconds, running=seconds, memory=st.integers(0, 10**12))
def test_no_two_parts_alone_make_a_job_stuck(silent: float, running: float, memory: int) -> None:
    assert total(silent_seconds=silent, running_seconds=running) <= 0.7 + 1e-9
    assert total(silent_seconds=silent, memory_bytes=memory) <= 0.7
    assert 0 <= total(silent_seconds=silent, running_seconds=running, memory_bytes=memory) <= 1


def looks(*moments: tuple[float, float]) -> Case:
    case = Case()
    for now, found in moments:
        case = case.look(found, now, SETTINGS)
    return case


def test_it_takes_three_looks_within_ten_seconds() -> None:
    assert not looks((0, 0.9), (3, 0.9)).confirmed(SETTINGS)
    assert looks((0, 0.9), (3, 0.9), (6, 0.9)).confirmed(SETTINGS)
    assert not looks((0, 0.9), (3, 0.9), (14, 0.9)).confirmed(SETTINGS)
    assert not looks((0, 0.9), (3, 0.6), (6, 0.9), (9, 0.9)).confirmed(SETTINGS)
    assert not looks((0, 0.7), (3, 0.7), (6, 0.7)).confirmed(SETTINGS)


def test_what_to_expect_is_learned_from_what_was_seen() -> None:
    report = QueueReport(finished=10, service_sum_seconds=20, service_sum_squares=40)
    assert Usual().learn(report).expected_seconds(300) == 300  # too few
    steady = Usual().learn(report).learn(report).learn(report)
    assert steady.expected_seconds(300) == pytest.approx(2.0, abs=0.01)
    assert Usual().learn(QueueReport()) == Usual()
    spread = QueueReport(finished=50, service_sum_seconds=100, service_sum_squares=400)
    assert Usual().learn(spread).expected_seconds(300) == pytest.approx(2 + 3 * 2)


def test_a_condemned_worker_is_killed_at_once_replaced_and_no_failed_start() -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    played.play(report(name, "busy", claims=(claim("a", 5.0),)))
    first = played.play(facts.Condemned(worker=name))
    assert [each.worker for each in of(Kill, first)] == [name]
    assert [each.cause for each in of(Start, first)] == ["respawn"]
    assert played.play(facts.Condemned(worker=name)) == []
    then = played.play(facts.Exited(worker=name, code=-9))
    assert [event.cause for event in of(WorkerStopped, then)] == ["stuck"]
    assert [(each.job_ids, each.ran) for each in of(GiveBack, then)] == [(("a",), ())]
    assert played.fleet.troubles == {}


def test_what_is_killed_at_its_drain_deadline_loses_its_worker_by_no_fault_of_its_own() -> None:
    played = Played(fleet())
    [name] = played.start({"mail": 1})
    played.play(report(name, "busy", claims=(claim("a", 5.0),)))
    played.play(facts.EndRequested())
    assert of(Kill, played.play(facts.Ticked(), after=31))
    [returned] = of(GiveBack, played.play(facts.Exited(worker=name, code=-9)))
    assert (returned.ran, returned.ended) == ((), f"worker {name} on {HOST} did not end in time")
