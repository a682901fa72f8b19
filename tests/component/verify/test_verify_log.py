"""`penstock verify` over histories that real workers and a real orchestrator made, in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.unit.decider.recorded import eventful

from penstock.bus.protocol import Outgoing
from penstock.bus.saved_log import BadLog, Entry
from penstock.cli.main import cli
from penstock.cli.verify import decisions, saved_events, spool
from penstock.cli.verify.judging import Judge
from penstock.decider.program import program
from penstock.events.envelope import encode, utc_now
from penstock.events.job import JobCompleted
from penstock.events.scaling import LeaderChanged, WorkersScaled
from penstock.events.subjects import Subjects
from penstock.jobs import Context, JobType, job, registry
from penstock.testing import Bench
from penstock.verifying.checker import Report
from penstock.verifying.rules import Rule


@job(queue="verified", tries=2)
def divide(amount: int, by: int) -> float:
    return amount / by


@job(queue="verified")
def follow_up(context: Context, text: str = "") -> None:
    context.progress(1, 2)


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    jobs: list[JobType[Any, Any]] = [divide, follow_up]
    registry.REGISTRY.update({one.name: one for one in jobs})
    yield
    for one in jobs:
        registry.REGISTRY.pop(one.name)


async def history(bench: Bench) -> list[str]:
    """Jobs, a batch, a chain and a schedule, run to their ends; returns the ids of the jobs."""
    client = bench.client
    ids = [await client.dispatch(divide(amount=1, by=by)) for by in (1, 0)]
    calls = [divide(amount=number, by=number % 3) for number in range(6)]
    await client.batches.create(calls, allowed_failures=2, then=follow_up(), finally_=follow_up())
    await client.graphs.chain([follow_up(), follow_up(text="x" * 2_000), follow_up()])
    await client.dispatch(follow_up(), delay=timedelta(days=1))
    await bench.run_pending()
    return ids


async def save(bench: Bench, path: Path) -> Path:
    """The log as `penstock verify --save` writes it."""
    with path.open("wb") as file:
        take = saved_events.saved(file, lambda entry: None)
        bus = bench.bus.client()
        extent = await saved_events.from_broker(bus, Subjects(), None, take, lambda share: None)
        file.write(saved_events.last_line(extent))
    return path


def verify(path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of the command."""
    call = ["--json", "verify", "--from", str(path), "--no-decisions", *arguments]
    answer = CliRunner().invoke(cli, call)
    assert not answer.stderr, answer.stderr
    return answer.exit_code, json.loads(answer.stdout)


def forged(job_id: str) -> JobCompleted:
    return JobCompleted(job_id=job_id, queue="verified", attempt=1, run_seconds=0, source="x")


async def test_what_really_happened_keeps_every_rule(penstock: Bench, tmp_path: Path) -> None:
    ids = await history(penstock)
    (tmp_path / "ids").write_text("\n".join(ids))
    path = await save(penstock, tmp_path / "log")
    code, answer = await asyncio.to_thread(verify, path, "--acknowledged", str(tmp_path / "ids"))
    report = answer["report"]
    assert code == 0 and answer["kept"], report
    assert (report["jobs"], report["living"]) == (14, 1)  # the delayed one waits
    assert (report["batches"], report["graphs"], report["acknowledged"]) == (1, 1, 2)
    assert report["unjudged"] == [] and not answer["extent"]["trimmed"]
    code, answer = await asyncio.to_thread(verify, path, "--all-ended")
    assert code == 1 and answer["report"]["broken"] == {"ends": 1}


async def test_an_event_that_should_not_be_is_reported(penstock: Bench, tmp_path: Path) -> None:
    first, _ = await history(penstock)
    event = forged(first)
    await penstock.bus.client().append(Outgoing(Subjects().event(event), encode(event)))
    code, answer = await asyncio.to_thread(verify, await save(penstock, tmp_path / "log"))
    assert code == 1 and not answer["kept"]
    assert set(answer["report"]["broken"]) == {"once", "legal", "outdated"}
    answered = CliRunner().invoke(cli, ["verify", "--from", str(tmp_path / "log")])
    assert f"job {first}" in answered.stdout and "3 violations:" in answered.stdout
    assert "Not judged: decisions: they are not in this file" in answered.stdout


async def test_what_is_no_event_is_reported(penstock: Bench, tmp_path: Path) -> None:
    await penstock.bus.client().append(Outgoing("penstock.events.job.x.JobStarted", b"{no JSON"))
    await penstock.bus.client().append(Outgoing("penstock.state.schedule.daily", b"{}"))
    await penstock.bus.client().append(Outgoing("penstock.commands.host-a", b"[]"))
    code, answer = await asyncio.to_thread(verify, await save(penstock, tmp_path / "log"))
    assert code == 1 and answer["report"]["broken"] == {"readable": 3}


async def test_a_part_of_the_log_says_what_is_not_judged(penstock: Bench) -> None:
    await history(penstock)
    subjects = Subjects()
    lost = await penstock.bus.client().last(subjects.events_stream, subjects.events("batch"))
    assert lost is not None
    bus = penstock.bus.client()
    for noun in ("job", "batch", "graph"):
        await bus.remove(subjects.events_stream, subjects.events(noun), before=lost.sequence)
    entries: list[Entry] = []
    extent = await saved_events.from_broker(bus, subjects, None, entries.append, lambda _: None)
    assert extent.trimmed and extent.whole_from >= lost.sequence


async def test_a_log_that_is_shortened_while_it_is_read_is_judged_from_there_on(
    penstock: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = await history(penstock)
    subjects, bus = Subjects(), penstock.bus.client()
    events = await bus.history(subjects.events_stream, subjects.job(first))
    begins = iter([(1, utc_now()), (events[2].sequence, utc_now())])

    async def begins_at(*_: object) -> tuple[int, datetime]:
        return next(begins)

    monkeypatch.setattr(saved_events, "begins_at", begins_at)
    with closing(Judge(tmp_path, 1)) as judge:

        def take(entry: Entry) -> None:
            if entry.sequence != events[1].sequence:  # its start was removed before it was read
                judge.take(entry)

        extent = await saved_events.from_broker(bus, subjects, None, take, lambda share: None)
        report = judge.report(extent, must_end=False, acknowledged=(), progress=lambda share: None)
    assert report.violations == [] and report.partial_jobs > 0
    assert (extent.judged_from, extent.carried) == (events[2].sequence, False)


async def test_a_leader_that_begins_while_the_log_is_read_is_not_blamed(
    penstock: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects, bus = Subjects(), penstock.bus.client()
    read_events = saved_events._events

    async def lead(epoch: int) -> None:
        leader = LeaderChanged(leader=f"d{epoch}", epoch=epoch)
        await bus.append(Outgoing(subjects.event(leader), encode(leader)))
        command = WorkersScaled(host="a", epoch=epoch, version=1, pools={})
        await bus.append(Outgoing(subjects.command("a"), encode(command)))

    async def events(*arguments: Any) -> AsyncIterator[Entry]:
        async for entry in read_events(*arguments):
            yield entry
        await lead(2)

    await lead(1)
    monkeypatch.setattr(saved_events, "_events", events)
    code, answer = await asyncio.to_thread(verify, await save(penstock, tmp_path / "log"))
    assert (code, answer["report"]["hosts"]) == (0, 1), answer


async def test_parts_on_disk_lead_to_the_same_report(
    penstock: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(penstock)
    monkeypatch.setattr(spool, "PART_MESSAGES", 4)
    path = await save(penstock, tmp_path / "log")
    reports = []
    for messages in (1, 40, 10_000):
        folder = tmp_path / str(messages)
        folder.mkdir()
        with closing(Judge(folder, messages)) as judge:
            extent = saved_events.from_file(path, judge.take, lambda share: None)
            report = judge.report(
                extent, must_end=True, acknowledged=(), progress=lambda share: None
            )
        reports.append(msgspec.structs.replace(report, violations=[]))
    assert reports[0] == reports[1] == reports[2]
    assert reports[0].broken == {"ends": 1}


async def test_a_file_that_was_cut_off_is_refused(penstock: Bench, tmp_path: Path) -> None:
    await history(penstock)
    path = await save(penstock, tmp_path / "log")
    path.write_bytes(path.read_bytes().rpartition(b"[0,")[0])
    with pytest.raises(BadLog, match="cut off"):
        saved_events.from_file(path, lambda entry: None, lambda share: None)
    answer = CliRunner().invoke(cli, ["verify", "--from", str(path)])
    assert answer.exit_code == 1 and "cut off" in answer.stderr


@pytest.mark.parametrize(
    ("sequence", "at"), [("1", "1e300"), ("1", "-1e12"), (f"1{'0' * 30}", "1.0"), (f"{2**63}", "1")]
)
def test_times_and_sequences_that_no_broker_gives_are_refused(
    tmp_path: Path, sequence: str, at: str
) -> None:
    (tmp_path / "log").write_text(f'[{sequence}, {at}, "penstock.events.job.a.JobDead", {{}}]\n')
    answer = CliRunner().invoke(cli, ["verify", "--from", str(tmp_path / "log")])
    assert answer.exit_code == 1
    assert "at byte 0: found b'[" in answer.stderr


def test_a_file_and_a_part_of_the_broker_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    answer = CliRunner().invoke(cli, ["verify", "--from", str(tmp_path / "log"), "--since", "1h"])
    assert answer.exit_code == 2
    assert "--from judges a whole file" in answer.output


# --- decisions ------------------------------------------------------------------------------------
def judged(tmp_path: Path, change: Callable[[bytes], bytes]) -> Report:
    log = eventful()
    log.entries = [
        msgspec.structs.replace(entry, body=msgspec.Raw(change(bytes(entry.body))))
        for entry in log.entries
    ]
    report = Report()
    decisions.judge(log.write(tmp_path / "log"), 1, lambda share: None, report)
    return report


def test_recorded_decisions_are_computed_again(tmp_path: Path) -> None:
    report = judged(tmp_path, lambda body: body)
    assert report.is_kept and report.decisions == 80 and report.unjudged == []


def test_a_decision_that_was_changed_is_reported(tmp_path: Path) -> None:
    report = judged(tmp_path, lambda body: body.replace(b'"strategy":"fixed"', b'"strategy":"x"'))
    assert set(report.broken) == {Rule.DECISION}


def test_decisions_of_another_program_are_not_judged(tmp_path: Path) -> None:
    def older(body: bytes) -> bytes:
        changed = body.replace(program().encode(), b"0.0.9+old")
        return changed.replace(b'"strategy":"fixed"', b'"strategy":"x"')

    report = judged(tmp_path, older)
    assert report.is_kept
    assert any("another program" in sentence for sentence in report.unjudged)
