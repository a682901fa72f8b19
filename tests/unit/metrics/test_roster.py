"""Reports count when an executor names their worker, within what its host allows."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.events.snapshot import HostSnapshot, PoolWorkers
from penstock.events.worker import Claim, QueueReport, WorkerReport
from penstock.measuring.hosts import HostBounds
from penstock.metrics.core.roster import Roster, Unbelievable
from penstock.metrics.core.workers import LAPSE_SECONDS, Workers, lapsed

GIB = 2**30


def host(*names: str, name: str = "a", memory: int = 8 * GIB, cores: float = 4.0) -> HostSnapshot:
    workers = PoolWorkers(planned=len(names), started=len(names), ready=0, names=names)
    return HostSnapshot(host=name, cpu_cores=cores, memory_bytes=memory, pools={"mails": workers})


def report(worker: str = "w1", **changes: Any) -> WorkerReport:
    usual = {"host": "a", "pool": "mails", "pid": 7, "state": "idle", "number": 1}
    return WorkerReport(**{**usual, "worker": worker, "at": 1.0, "started_at": 0.0, **changes})


def roster(*names: str, **bounds: Any) -> Roster:
    made = Roster(HostBounds(**bounds))
    list(made.see(host(*names), at=100.0, now=0.0))
    return made


def test_a_worker_that_no_executor_names_is_not_believed() -> None:
    known = roster("w1")
    assert known.admit(report("w1"), 0.0) is not None
    assert known.admit(report("ghost"), 0.0) is None
    assert known.admit(report("w1", pool="others"), 0.0) is None
    assert known.admit(report("w1", host="b"), 0.0) is None


def test_a_report_that_comes_before_its_host_names_it_counts_a_moment_later() -> None:
    known = roster()
    assert known.admit(report("w1"), 0.0) is None
    assert known.admit(report("ghost"), 0.0) is None
    assert [each.worker for each in known.see(host("w1"), at=100.1, now=0.1)] == ["w1"]
    assert list(known.see(host("w1", "ghost"), at=110.0, now=10.0)) == []  # too late for it


def test_what_is_kept_aside_is_bounded() -> None:
    known = roster()
    for number in range(1000):
        known.admit(report(f"w{number}"), 0.0)
        known.admit(report("w", host=f"h{number}"), 0.0)
    assert len(list(known.see(host(*(f"w{n}" for n in range(1000))), at=100.1, now=0.1))) <= 64


def test_no_worker_has_more_memory_than_its_host() -> None:
    admitted = roster("w1").admit(report(memory_bytes=10**14), 0.0)
    assert admitted is not None
    assert admitted.memory_bytes == 8 * GIB


@pytest.mark.parametrize(
    "nonsense",
    [
        {"state": "asleep"},
        {"number": -1},
        {"at": float("nan")},
        {"started_at": float("inf")},
        {"cpu_seconds": 1e300},
        {"cpu_seconds": -1.0},
        {"memory_bytes": -1},
        {"claims": (Claim(job_id="j", ack_subject="s", running_seconds=1e300),)},
        {"claims": (Claim(job_id="j", ack_subject="s", running_seconds=1.0),) * 1001},
        {"queues": {"mails": QueueReport(finished=10**12)}},
        {"queues": {"mails": QueueReport(started=-1)}},
        {"queues": {"mails": QueueReport(slowest_seconds=float("inf"))}},
        {"queues": {"mails": QueueReport(started=2, late=3)}},
        {"queues": {"mails": QueueReport(started=2, redelivered=3)}},
        {"queues": {"mails": QueueReport(finished=2, failed=3)}},
        {"held": -5_000_000},
        {"held": 10**12},
        {"slots": -4},
        {"slots": 10**12},
        {"slots_used": -4},
        {"slots_used": 10**12},
    ],
)
def test_a_report_beyond_belief_is_refused(nonsense: dict[str, Any]) -> None:
    with pytest.raises(Unbelievable, match="found"):
        roster("w1").admit(report(**nonsense), 0.0)


def test_a_report_beyond_belief_does_not_keep_out_others_that_wait_for_their_host() -> None:
    known = roster()
    with pytest.raises(Unbelievable):
        known.admit(report("w1", held=-1), 0.0)
    assert known.admit(report("w2"), 0.0) is None
    admitted = known.see(host("w1", "w2"), at=100.1, now=0.1)
    assert [waited.worker for waited in admitted] == ["w2"]


@pytest.mark.parametrize("size", [{"cores": 1e6}, {"memory": 2**60}, {"cores": float("inf")}])
def test_a_host_larger_than_any_machine_is_refused(size: dict[str, Any]) -> None:
    with pytest.raises(Unbelievable, match="expected at most"):
        roster().see(host(**size), at=100.0, now=0.0)


def test_hosts_are_bounded_in_number_and_forgotten() -> None:
    known = roster("w1", most=2, lease_seconds=6.0)
    list(known.see(host("w2", name="b"), at=101.0, now=1.0))
    with pytest.raises(Unbelievable, match=r"hosts\.most"):
        known.see(host("w3", name="c"), at=102.0, now=2.0)
    list(known.see(host("w2", name="b"), at=106.5, now=6.5))
    list(known.see(host("w3", name="c"), at=106.6, now=6.6))  # host a was lost meanwhile
    assert known.admit(report("w1"), 7.0) is None
    assert known.admit(report("w3", host="c"), 7.0) is not None


def test_hosts_that_are_not_allowed_are_refused() -> None:
    known = Roster(HostBounds(allowed=("rack-*",)))
    list(known.see(host(name="rack-7"), at=100.0, now=0.0))
    with pytest.raises(Unbelievable, match=r"hosts\.allowed"):
        known.see(host(name="ghost"), at=100.0, now=0.0)


def test_one_worker_among_several_does_not_stand_for_all() -> None:
    workers = Workers()
    for number, size in enumerate((100, 100, 100, 100_000)):
        workers.add_report(report(f"w{number}", memory_bytes=size), 0.0)
    workers.refresh(0.0)
    assert workers.memory_bytes == (3 * 100 + 400) // 4


def test_what_was_remembered_is_bounded_by_the_largest_host() -> None:
    workers = Workers()
    workers.memory_bytes, workers.cpu_cores = 10**14, 5000.0
    workers.bound(4.0, 8 * GIB)
    assert (workers.cpu_cores, workers.memory_bytes) == (4.0, 8 * GIB)


def test_a_measure_lapses_towards_the_settings_while_no_worker_reports() -> None:
    assert lapsed(900, 100, LAPSE_SECONDS) == 900
    assert lapsed(900, 100, 2 * LAPSE_SECONDS) == 500
    assert lapsed(900, 100, 100 * LAPSE_SECONDS) == pytest.approx(100)
