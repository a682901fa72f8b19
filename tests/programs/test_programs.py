"""A few random programs with a process killed at each message; `make programs` for many."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.programs.drawing import draw
from tests.programs.model import Undetermined, expected
from tests.programs.program import (
    Break,
    Catch,
    Gather,
    Inline,
    Map,
    Patched,
    Race,
    Raise,
    Run,
    Sent,
    Sequence,
    Sleep,
    Story,
    Sub,
    Tidy,
    Undo,
    Wait,
    leaves,
)
from tests.programs.proof import prove

from penstock.bus.protocol import Outgoing
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.testing.memory.broker import MemoryBroker
from penstock.testing.memory.bus import MemoryBus

HOUR = 3600.0
SAMPLE = (2, 5, 10, 11, 10_037)


@pytest.mark.parametrize("seed", SAMPLE)
def test_a_crash_at_any_message_changes_nothing(seed: int) -> None:
    verdict = prove(seed)
    assert verdict.programs == 1
    assert verdict.crashes
    assert not verdict.wrong, "\n".join(verdict.wrong[:5])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_a_crash_at_any_message_of_more_programs_changes_nothing(seed: int) -> None:
    verdict = prove(seed)
    assert not verdict.wrong, "\n".join(verdict.wrong[:5])


def test_a_seed_is_a_story() -> None:
    assert draw(1) == draw(1) != draw(2)
    drawn = {type(leaf) for seed in range(200) for leaf in leaves(draw(seed).program)}
    assert drawn == {Run, Map, Undo, Inline, Sleep, Wait, Raise, Break}


# --- the model ------------------------------------------------------------------------------------
def hours(number: float) -> float:
    return number * HOUR


CASES: list[tuple[Any, Any]] = [
    (Run(3, hours(2)), ("completed", 3, 2)),
    (Run(3, hours(2), 1), ("completed", 3, 2)),
    (Run(3, hours(2), 2), ("dead", "StepFailed", 2)),
    (Sequence((Sleep(hours(2)), Inline(7))), ("completed", ["slept", 7], 2)),
    (Gather((Run(0, hours(2)), Sleep(hours(5)))), ("completed", [0, "slept"], 5)),
    (Gather((Run(0, hours(2), 2), Sleep(hours(5)))), ("dead", "StepFailed", 2)),
    (Gather((Run(0, hours(2), 2), Sleep(hours(5))), drain=True), ("dead", "StepFailed", 5)),
    (Race((Run(0, hours(4)), Sleep(hours(2)))), ("completed", "slept", 2)),
    (Catch(Run(0, hours(2), 2)), ("completed", "caught StepFailed", 2)),
    (Catch(Wait("stop", hours(2))), ("completed", "caught TimeoutError", 2)),
    (Wait("stop", hours(2), has_default=True), ("completed", "nothing", 2)),
    (Map((Run(0, hours(2)), Run(1, hours(5), 2)), 1), ("completed", [1, 1, 0], 5)),
    (Map((Run(0, hours(2)), Run(1, hours(5), 2), Run(2, hours(9)))), ("dead", "StepFailed", 5)),
    (Sub(Run(0, hours(2))), ("completed", 0, 2)),
    (Sub(Sequence((Sleep(hours(2)), Raise()))), ("dead", "StepFailed", 2)),
    (Sequence((Run(0, hours(2), 0, Run(1, hours(3))), Undo())), ("completed", [0, "undone"], 5)),
    (Sequence((Run(0, hours(2), 0, Run(1, hours(3), 2)), Undo())), ("dead", "StepFailed", 5)),
    (Wait("go", hours(9)), ("completed", 1, 3)),
    (Sequence((Wait("go", hours(9)), Wait("go", hours(9)))), ("completed", [1, 2], 7)),
    (Sequence((Sleep(hours(5)), Wait("go", hours(9)))), ("completed", ["slept", 1], 5)),
    (Catch(Raise()), ("dead", "Broken", 0)),
    (Break(), ("completed", "mended", 0)),
]


@pytest.mark.parametrize(("program", "end"), CASES)
def test_the_model_knows_how_a_program_ends(program: Any, end: tuple[str, Any, float]) -> None:
    story = Story(0, program, (Sent(hours(3), "go", 1, 2), Sent(hours(7), "go", 2)))
    found = expected(story)
    assert (found.state, found.outcome, round(found.at)) == (end[0], end[1], hours(end[2]))


def test_the_model_knows_of_a_cancel() -> None:
    found = expected(Story(0, Sleep(hours(5)), cancelled_at=hours(2)))
    assert (found.state, round(found.at)) == ("cancelled", hours(2))


def test_the_model_knows_of_a_pause() -> None:
    program = Sequence((Sub(Sequence((Sleep(hours(2)), Sleep(hours(2))))), Sleep(hours(5))))
    found = expected(Story(0, program, paused=(hours(3), hours(7))))
    assert (found.state, round(found.at)) == ("completed", hours(12))


@pytest.mark.parametrize(("deployed_at", "end"), [(1, "slept"), (3, 7)])
def test_the_model_knows_of_a_deployment(deployed_at: int, end: Any) -> None:
    program = Sequence((Sleep(hours(2)), Patched(0, Inline(7), Sleep(hours(1)))))
    found = expected(Story(0, program, deployed_at=hours(deployed_at)))
    assert found.outcome == ["slept", end]


def test_the_model_knows_of_cleaning_up() -> None:
    found = expected(Story(0, Tidy(Sleep(hours(5)), Run(0, hours(2))), cancelled_at=hours(2)))
    assert (found.state, round(found.at)) == ("cancelled", hours(4))


@pytest.mark.parametrize(
    "program",
    [
        Race((Sleep(hours(2)), Run(0, hours(2)))),
        Race((Inline(1), Inline(2))),
        Race((Race((Sleep(hours(2)), Race((Sleep(hours(5)), Break())))), Inline(1))),
        Gather((Run(0, hours(2), 2), Run(1, hours(2.5)))),
    ],
)
def test_what_a_crash_may_change_is_not_judged(program: Any) -> None:
    with pytest.raises(Undetermined):
        expected(Story(0, program))


# --- it can fail ----------------------------------------------------------------------------------
def lose_records(broker: MemoryBroker, message: Outgoing) -> int | None:
    is_record = message.subject.endswith(".StepRecorded")
    return message.expect.sequence if is_record and message.expect else None


def dispatch_twice(broker: MemoryBroker, message: Outgoing) -> int | None:
    if "_step_" in message.subject and message.subject.endswith(".JobDispatched"):
        broker.append(message)
        return broker.append(replace(message, headers={}, expect=None))
    return None


def start_unfenced(broker: MemoryBroker, message: Outgoing) -> int | None:
    if message.subject.endswith(".JobStarted"):
        return broker.append(replace(message, expect=None))
    return None


@pytest.mark.parametrize(
    ("defect", "seed", "sign"),
    [
        (lose_records, 20, "1 more than are recorded"),
        (dispatch_twice, 11, "JobDispatched may not follow"),
        (start_unfenced, 2, "JobStarted may not follow"),
    ],
)
def test_a_defect_of_what_is_stored_is_found(
    monkeypatch: pytest.MonkeyPatch, defect: Any, seed: int, sign: str
) -> None:
    append = MemoryBus.append

    async def defective(bus: MemoryBus, message: Outgoing) -> int:
        stored = defect(bus._broker, message)
        return await append(bus, message) if stored is None else stored

    monkeypatch.setattr(MemoryBus, "append", defective)
    assert any(sign in line for line in prove(seed, until_wrong=True).wrong)


async def _no_round(*_: object) -> None:
    pass


def test_an_orchestrator_that_makes_up_for_nothing_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SuspendedWorkflows, "round", _no_round)
    assert any("expected completed" in line for line in prove(11, until_wrong=True).wrong)
