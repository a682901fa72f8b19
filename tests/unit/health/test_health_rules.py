"""From facts to states with reasons, and to what acknowledged jobs survive."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.events.snapshot import PoolWorkers
from penstock.health.facts import (
    BlockedFacts,
    BrokerFacts,
    DiskFacts,
    Facts,
    HookFacts,
    HostFacts,
    LogFacts,
    ServiceFacts,
    SourceFacts,
    StreamFacts,
    UnservedQueue,
)
from penstock.health.report import Report, State, worst
from penstock.health.rules import judge

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
STREAM = StreamFacts(name="JOBS", bytes=10, messages=1)
GOOD = Facts(
    broker=BrokerFacts(answer_seconds=0.001, stored_bytes=1, storage_bytes=100, sync_seconds=120.0),
    streams=(STREAM, replace(STREAM, name="EVENTS", max_bytes=100)),
    disks=(DiskFacts(path="/data", use="files", used_bytes=1, total_bytes=100),),
    hosts=(
        HostFacts(
            name="a", silent_seconds=1.0, memory_share=0.5, spark="running",
            pools={"mail": PoolWorkers(planned=2, started=2, ready=2)},
        ),
    ),
    services=(ServiceFacts(name="decider", silent_seconds=1.0, allowed_seconds=9.0),),
    skew_seconds=0.01,
    pools=("mail",),
)  # fmt: skip


def found(**fields: Any) -> Report:
    return judge(replace(GOOD, **fields), NOW)


def broker(**fields: Any) -> dict[str, Any]:
    return {"broker": replace(GOOD.broker, **fields)}


def stream(**fields: Any) -> dict[str, Any]:
    return {"streams": (replace(STREAM, **fields),)}


def host(**fields: Any) -> dict[str, Any]:
    return {"hosts": (replace(GOOD.hosts[0], **fields),)}


def workers(planned: int, ready: int, crash_loop: bool = False) -> dict[str, Any]:
    pool = PoolWorkers(planned=planned, started=planned, ready=ready, crash_loop=crash_loop)
    return host(pools={"mail": pool})


def stray(**fields: Any) -> dict[str, Any]:
    return {"unserved": (UnservedQueue(name="mial", why="no pool takes it", **fields),)}


def read_from(**fields: Any) -> dict[str, Any]:
    return {"sources": (SourceFacts(pool="mail", source="shop", **fields),)}


def failing(**fields: Any) -> dict[str, Any]:
    return {"hooks": (HookFacts(name="pager", **fields),)}


def blocked(*counts: int) -> dict[str, Any]:
    return {
        "blocked": tuple(
            BlockedFacts(function=f"shop.f{n}", workflows=count, since=7200.0)
            for n, count in enumerate(counts)
        )
    }


def service(silent_seconds: float | None, **fields: Any) -> dict[str, Any]:
    return {"services": (replace(GOOD.services[0], silent_seconds=silent_seconds, **fields),)}


def disk(used: int) -> dict[str, Any]:
    return {"disks": (replace(GOOD.disks[0], used_bytes=used),)}


H, W, D, U = State.HEALTHY, State.WARNING, State.DEGRADED, State.UNHEALTHY


def test_what_is_well_is_healthy_without_reasons() -> None:
    report = found()
    assert report.state is H
    assert {finding.component for finding in report.findings} == {
        "broker", "streams", "disk", "queues", "sources", "services", "settings", "schedules",
        "hooks", "workflows", "workers", "spark", "clock",
    }  # fmt: skip
    assert all(not finding.reasons for finding in report.findings)


@pytest.mark.parametrize(
    ("fields", "component", "state", "words"),
    [
        (broker(answer_seconds=0.3), "broker", W, "0.30 s to answer"),
        (broker(answer_seconds=2.0), "broker", D, "2.00 s to answer"),
        (broker(stored_bytes=80), "broker", W, "80% full"),
        (broker(stored_bytes=96), "broker", U, "jobs will be refused"),
        (broker(stored_bytes=96, storage_bytes=None), "broker", H, ""),
        ({"missing_streams": ("DEAD",)}, "streams", U, "DEAD is missing"),
        (stream(bytes=96, max_bytes=100), "streams", W, "oldest messages go"),
        (stream(bytes=90, max_bytes=100), "streams", H, ""),
        (stream(bytes=90, max_bytes=100, full_refuses=True), "streams", W, "90% full"),
        (stream(bytes=96, max_bytes=100, full_refuses=True), "streams", U, "refused"),
        (stream(replicas=3, lagging=1), "streams", D, "1 of 3 replicas"),
        (disk(80), "disk", W, "/data"),
        (disk(99), "disk", U, "99% full"),
        ({**disk(70), "disk_warning_share": 0.6}, "disk", W, "70% full"),
        ({**disk(70), "disk_warning_share": 0.6, "disk_critical_share": 0.7}, "disk", U, "70%"),
        (
            stray(jobs=12, oldest_seconds=90),
            "queues",
            D,
            "queue mial: 12 jobs, the oldest for 90 s",
        ),
        (stray(jobs=1, excluded=True), "queues", W, "queue mial: 1 job:"),
        (read_from(age_seconds=1.0), "sources", H, ""),
        (read_from(), "sources", W, "pool mail: source shop: not measured yet"),
        (
            read_from(age_seconds=65.0, fault="connection refused."),
            "sources",
            D,
            "refused; its figures are 65 s old",
        ),
        (read_from(age_seconds=1.0, stuck=3), "sources", W, "3 messages that no worker takes"),
        (
            failing(waiting=2, failing_since=3600.0, error="cannot run pager"),
            "hooks",
            D,
            "hook pager: 2 notices are not delivered, and tried again, since 1970-01-01 01:00:00 "
            "UTC: cannot run pager",
        ),
        (blocked(1), "workflows", D, "1 workflow of shop.f0 is blocked since 1970-01-01 02:00"),
        (blocked(*[3] * 12), "workflows", D, "workflows of 2 more functions are blocked"),
        (failing(dropped_at=7200.0, error="status 404"), "hooks", D, "dropped at 1970-01-01 02:00"),
        (service(10.0), "services", D, "service decider: no update for 10 s"),
        (service(None), "services", D, "no decider has ever run"),
        (
            service(None, name="metrics", runs=True),
            "services",
            D,
            "service metrics runs and has published nothing yet (its log has the reason if this "
            "lasts): nothing is measured",
        ),
        (
            host(order="drained by cli/ann: new kernel"),
            "workers",
            W,
            "host a is drained by cli/ann",
        ),
        ({"holds": ("pool mail is held at 5",)}, "workers", W, "pool mail is held at 5"),
        ({"holds": ("held",) * 12}, "workers", W, "2 more pools are held"),
        ({"settings_drift": ("decider on a",) * 12}, "settings", W, "2 more services"),
        ({"hosts": ()}, "workers", U, "nothing runs"),
        ({"hosts": (), "pools": ()}, "workers", H, ""),
        (host(silent_seconds=7.0), "workers", U, "nothing runs"),
        (workers(2, 1), "workers", W, "1 of 2 planned"),
        (workers(2, 0), "workers", D, "none is ready"),
        (workers(0, 0), "workers", H, ""),
        (
            workers(2, 2, crash_loop=True),
            "workers",
            D,
            "crash loop, workers end, or are not ready in time",
        ),
        (host(reload_error="jobs: SyntaxError"), "workers", D, "failed: jobs: SyntaxError"),
        (host(memory_share=0.99), "workers", D, "memory of host a"),
        (host(spark="down"), "spark", D, "supervisor"),
        (host(spark=""), "spark", H, ""),
        ({"remote_spark": "Spark at x cannot be reached"}, "spark", D, "cannot be reached"),
        ({"remote_spark": ""}, "spark", H, ""),
        ({"skew_seconds": -1.5}, "clock", W, "1.5 s behind"),
        ({"skew_seconds": 60.0}, "clock", D, "60.0 s before"),
        ({"skew_seconds": None}, "clock", H, ""),
        (host(skew_seconds=2.0), "clock", W, "host a"),
    ],
)
def test_what_is_not_well_is_told_with_its_reason(
    fields: dict[str, Any], component: str, state: State, words: str
) -> None:
    report = found(**fields)
    [finding] = [each for each in report.findings if each.component == component]
    assert finding.state is state
    assert report.state is state  # nothing else is wrong
    assert any(words in reason for reason in finding.reasons) or (state is H and not words)


def test_one_lost_host_of_two_is_no_end_of_the_world() -> None:
    lost = replace(GOOD.hosts[0], name="b", silent_seconds=60.0)
    assert found(hosts=(GOOD.hosts[0], lost)).state is D


def test_the_worst_reason_comes_first_and_gives_the_state() -> None:
    [finding] = [f for f in found(**workers(4, 2)).findings if f.component == "workers"]
    assert finding.state is W
    bad = found(hosts=(workers(4, 2)["hosts"][0], replace(GOOD.hosts[0], silent_seconds=60)))
    [finding] = [f for f in bad.findings if f.component == "workers"]
    assert "silent" in finding.reasons[0]
    assert worst([]) is H


def test_without_a_broker_only_what_can_be_known_is_told() -> None:
    report = judge(Facts(broker=BrokerFacts(error="no answer")), NOW)
    assert (report.state, report.durability) == (U, None)
    assert [each.component for each in report.findings] == ["broker", "disk"]


@pytest.mark.parametrize(
    ("fields", "process", "power", "node"),
    [
        ({}, "yes", "no", "no"),
        (broker(sync_seconds=0.0), "yes", "yes", "no"),
        (broker(sync_seconds=None), "yes", "unknown", "no"),
        (stream(storage="memory"), "no", "no", "no"),
        (stream(replicas=3), "yes", "partly", "yes"),
        (stream(replicas=3, lagging=1), "yes", "partly", "partly"),
        ({**stream(replicas=3), **broker(sync_seconds=0.0)}, "yes", "yes", "yes"),
        ({"streams": (STREAM, replace(STREAM, replicas=3))}, "yes", "no", "no"),
    ],
)
def test_what_acknowledged_jobs_survive(
    fields: dict[str, Any], process: str, power: str, node: str
) -> None:
    durability = found(**fields).durability
    assert durability is not None
    answers = (durability.process, durability.power, durability.node)
    assert tuple(each.answer for each in answers) == (process, power, node)
    assert all(each.because for each in answers)
    assert found().durability.power.because.count("120 s") == 1  # type: ignore[union-attr]


def test_jobs_that_fill_the_event_log_are_told_hours_before_with_figures() -> None:
    log = LogFacts(
        limit_bytes=4_000_000_000,
        held_bytes=3_500_000_000,
        tail_seconds=7200.0,
        growth_per_hour=2e9,
        living_bytes=1_000_000_000,
        living_growth_per_hour=5e8,
        oldest_living_seconds=36_000.0,
    )
    [finding] = [one for one in found(log=log).findings if one.component == "streams"]
    assert finding.state is State.WARNING
    for figure in ("1,000.0 of 4,000 MB", "2.0 h", "10.0 h old", "2,000 MB/h", "in 6.0 h"):
        assert figure in finding.reasons[0]


def test_a_log_mostly_of_living_jobs_is_degraded() -> None:
    log = LogFacts(limit_bytes=100, held_bytes=95, tail_seconds=1.0, living_bytes=85)
    [finding] = [one for one in found(log=log).findings if one.component == "streams"]
    assert finding.state is State.DEGRADED


def test_a_log_that_accepts_no_job_is_unhealthy_in_the_present_tense() -> None:
    events = StreamFacts(
        name="EVENTS", messages=9, bytes=4_999_500, max_bytes=7_000_000, accepts_bytes=5_000_000
    )
    log = LogFacts(
        limit_bytes=3_000_000,
        held_bytes=4_999_500,
        tail_seconds=1.0,
        living_bytes=4_800_000,
        living_growth_per_hour=1e6,
    )
    [finding] = [f for f in found(log=log, streams=(events,)).findings if f.component == "streams"]
    assert finding.state is State.UNHEALTHY
    [reason] = finding.reasons
    for words in (
        "the event log accepts no job",
        "it holds 5.0 MB, jobs are accepted up to 5.0 MB",
        "jobs that have not ended took 4.8 MB",
        "raise streams.events_max_bytes",
    ):
        assert words in reason


def test_a_log_with_room_for_a_job_accepts_jobs() -> None:
    events = StreamFacts(name="EVENTS", messages=9, bytes=4_900_000, accepts_bytes=5_000_000)
    assert found(streams=(events,)).state is State.HEALTHY
