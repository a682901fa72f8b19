"""What a workflow remembers of signals that it passed over."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.events.workflow import WorkflowAdvanced
from penstock.events.workflow_memo import MAX_REFUSED_SIGNALS, RefusedSignal
from penstock.jobs.workflows.coded import consumed_signals, memo, results
from penstock.jobs.workflows.coded.commands import Command, WaitSignal
from penstock.jobs.workflows.coded.inbox import Signal
from penstock.jobs.workflows.coded.running.advancing import Arrivals
from penstock.jobs.workflows.coded.running.nodes import Leaf, Node

NOW = datetime(2026, 11, 23, tzinfo=UTC)
ADVANCES = 50


def after_a_flood(read_to: int) -> memo.WorkflowMemo:
    """The memo after advances that each passed over as many signals as one may.

    Args:
        read_to: up to where each of them used up the inbox; 0: to the last of its own.
    """
    recorded = memo.EMPTY
    for number in range(1, ADVANCES + 1):
        last = number * MAX_REFUSED_SIGNALS
        sequences = range(last - MAX_REFUSED_SIGNALS + 1, last + 1)
        refused = tuple(
            RefusedSignal(sequence=one, signal="approved", reason="Expected `bool`")
            for one in sequences
        )
        event = WorkflowAdvanced(
            job_id="w",
            queue="workflows",
            number=number,
            now=NOW,
            refused=refused,
            read_to=read_to or last,
        )
        recorded = memo.advanced(recorded, event)
    return recorded


def test_only_the_last_refusals_are_kept() -> None:
    recorded = after_a_flood(read_to=0)
    refused = consumed_signals.refused(recorded)
    assert [one.sequence for one in refused] == [*range(4_901, 5_001)]
    consumed = consumed_signals.of(recorded)
    assert all(sequence in consumed for sequence in range(1, 5_001))


def test_those_behind_the_mark_are_known_without_their_reasons() -> None:
    recorded = after_a_flood(read_to=1)
    refused = consumed_signals.refused(recorded)
    assert sum(bool(one.reason) for one in refused) == MAX_REFUSED_SIGNALS
    consumed = consumed_signals.of(recorded)
    assert all(sequence in consumed for sequence in range(1, 5_001))


def test_what_fits_no_wait_is_decoded_once_however_many_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given 300 waits for one signal, and 200 of it that fit none of them."""
    decoded: list[bytes] = []
    misfit = results.misfit

    def counted(command: Command[Any], value: bytes) -> str:
        decoded.append(value)
        return misfit(command, value)

    monkeypatch.setattr(results, "misfit", counted)
    signals = [Signal("go", number, b"\xa1x") for number in range(1, 201)]
    arrivals = Arrivals((), lambda: [*signals, Signal("go", 201, b"\xc3")])
    waits = {
        f"go#{number}": Leaf(
            Node(None), f"go#{number}", WaitSignal(f"go#{number}", "go", bool), "go", None
        )
        for number in range(300)
    }
    end = arrivals.next(waits, NOW)
    assert end is not None and (end.key, end.sequence) == ("go#0", 201)
    del waits["go#0"]
    assert arrivals.next(waits, NOW) is None
    assert len(decoded) == 201
    assert len(arrivals.refused(waits)) == MAX_REFUSED_SIGNALS
