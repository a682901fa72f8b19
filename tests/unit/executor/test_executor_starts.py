"""A worker's first moments: its own report may come before its warm parent's word of the fork."""

from __future__ import annotations

from tests.unit.executor.making import Played, command, events, fleet, of, report

from penstock.events.worker import WorkerReady, WorkerStarted
from penstock.executor.core import facts
from penstock.executor.core.instruction import Start
from penstock.executor.core.worker import Phase


def test_a_report_before_the_word_of_the_fork_starts_the_worker_with_its_pid() -> None:
    played = Played(fleet())
    [start] = of(Start, played.play(command({"mail": 1})))

    told = events(played.play(report(start.worker, pid=77)))
    assert [(type(each), each.pid) for each in told] == [(WorkerStarted, 77), (WorkerReady, 77)]

    assert events(played.play(facts.Forked(worker=start.worker, pid=77))) == []  # said already
    assert played.phases() == {start.worker: Phase.IDLE}
