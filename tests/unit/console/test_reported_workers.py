"""Reports of workers fill no memory, and count only where a host vouches for the worker."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.console.read_models import reported_workers
from penstock.console.read_models.reported_workers import ReportedWorkers
from penstock.events.snapshot import HostSnapshot, PoolWorkers
from penstock.events.subjects import Subjects
from penstock.events.worker import WorkerReport

SUBJECTS = Subjects()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def report(worker: str = "w1", **fields: Any) -> bytes:
    known = {"host": "h", "pool": "p", "pid": 1, "state": "idle", "number": 1, "at": 0.0}
    return msgspec.json.encode(WorkerReport(worker=worker, started_at=0.0, **{**known, **fields}))


def reported(*names: str) -> tuple[ReportedWorkers, Clock]:
    clock = Clock()
    workers = ReportedWorkers(SUBJECTS, clock)
    of_pool = PoolWorkers(planned=1, started=1, ready=1, names=names)
    workers.see(HostSnapshot(host="h", cpu_cores=1, memory_bytes=1, pools={"p": of_pool}))
    return workers, clock


def subject(worker: str = "w1", host: str = "h") -> str:
    return SUBJECTS.worker_report(host, worker)


def test_a_worker_that_its_host_names_is_shown() -> None:
    workers, _ = reported("w1")
    assert workers.take(subject(), report())
    assert [row.worker for row in workers.rows()] == ["w1"]


@pytest.mark.parametrize(
    ("sent_on", "body"),
    [
        (subject("w2"), report("w2")),
        (subject("w2"), report("w1")),
        (subject(), report(pool="other")),
        (subject(host="g"), report(host="g")),
        (subject(), b"{}"),
        (subject(), report() + b" " * reported_workers.MOST_BYTES),
    ],
    ids=["not named", "another subject", "another pool", "no such host", "no report", "too large"],
)
def test_what_no_host_vouches_for_is_not_kept(sent_on: str, body: bytes) -> None:
    workers, _ = reported("w1")
    assert not workers.take(sent_on, body)
    assert len(workers) == 0


def test_invented_workers_take_no_room() -> None:
    workers, _ = reported("w1")
    for number in range(1_000):
        workers.take(subject("w"), report(f"w{number}-{'p' * 3_000}"))
    assert len(workers) == 0


def test_the_number_is_bounded_and_known_ones_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reported_workers, "MOST_WORKERS", 2)
    workers, _ = reported("w1", "w2", "w3")
    taken = [workers.take(subject(name), report(name)) for name in ("w1", "w2", "w3", "w1")]
    assert taken == [True, True, False, True]


def test_silent_workers_are_forgotten_without_a_reader() -> None:
    workers, clock = reported("w1", "w2")
    workers.take(subject("w1"), report("w1"))
    clock.now = reported_workers.SILENT_SECONDS + 1
    workers.take(subject("w2"), report("w2"))
    assert len(workers) == 1
    clock.now *= 3
    workers.forget_silent()
    assert len(workers) == 0
