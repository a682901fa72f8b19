"""Strangers with valid keys: whatever they write, no service ends, spins, or loses a job."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.histories import Entry, check
from tests.integration.forging import PREFIX, Forged, forged, on
from tests.integration.guarded import join
from tests.integration.guarded_site import Site, running_site
from tests.integration.sample_jobs import note
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.cli.deploy.roles import ROLES
from penstock.events.job import JOB_EVENTS
from penstock.events.subjects import Subjects
from penstock.jobs import Client

WRITERS = [name for name, role in ROLES.items() if role.publishes]
ROUNDS = int(os.environ.get("FORGED_ROUNDS", "1"))
"""docs/security.md tells of more."""
_A_ROUND = 40
UNREADABLE = {
    "dispatcher": (
        "events.job.forged.JobDispatched",
        "events.batch.forged.BatchCreated",
        "events.graph.forged.GraphStarted",
        "jobs.work",
        "keys.unique.forged",
    ),
    "orchestrator": (
        "state.cursor.orchestrator",
        "state.health.report",
        "state.schedule.forged",
        "state.batch.forged",
        "dead.work.forged",
    ),
    "executor": ("snapshots.host.test-host", "events.worker.forged.WorkerReady"),
    "metrics": ("snapshots.pool.work",),
    "decider": ("commands.test-host", "state.lease.decider", "snapshots.round.work"),
    "worker": ("beats.worker.test-host.w-1", "checkpoints.forged", "state.exclusive.forged"),
}
_BIG = "1" + "0" * 400
_NEVER = "9999-12-31T23:59:59-23:59"
BEYOND_RECKONING = {
    "dispatcher": {
        "events.job.beyond1.JobDispatched": '"job_id":"beyond1","queue":"work","function":"x",'
        '"payload":"","due_at":"0001-01-01T00:00:00"',
        "events.job.beyond2.JobDispatched": '"job_id":"beyond2","queue":"work","function":"x",'
        f'"payload":"","due_at":"{_NEVER}"',
        "events.batch.beyond3.BatchCreated": f'"batch_id":"beyond3","allowed_failures":{_BIG}',
        "events.batch.beyond4.BatchCreated": f'"batch_id":"beyond4","at":"{_NEVER}"',
        "events.graph.beyond5.GraphStarted": '"graph_id":"beyond5","steps":['
        f'{{"name":"a","payload":"","takes":{{"x":{_BIG}}}}}]',
    },
    "executor": {
        "snapshots.host.test-host": f'"host":"test-host","cpu_cores":1,"memory_bytes":{_BIG}',
        "snapshots.host.invented": f'"host":"invented","cpu_cores":1,"memory_bytes":{_BIG}',
    },
    "worker": {
        "beats.worker.test-host.w-1": '"worker":"w-1","host":"test-host","pool":"work","pid":1,'
        '"state":"busy","number":1,"at":1,"started_at":1,'
        f'"queues":{{"work":{{"finished":{_BIG}}}}}',
    },
}
"""Well typed, and beyond what dates, floats and MessagePack can hold."""
_LINES_A_MESSAGE = 30
_LOOK_SECONDS = 2.0
_GROWN_BYTES = 200_000_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("forged")) as site:
        yield site


@pytest.mark.long
@pytest.mark.parametrize("role", WRITERS)
async def test_what_a_stranger_with_a_key_writes_does_no_harm(
    site: Site, role: str, tmp_path: Path
) -> None:
    await _survives(site, tmp_path, lambda: _flood(site, role))


async def test_what_no_decoder_takes_ends_no_service(site: Site, tmp_path: Path) -> None:
    """Each of these ended an orchestrator, again and again, since they stay in the log."""
    await _survives(site, tmp_path, lambda: asyncio.run(_send_unreadable(site)))


async def _survives(site: Site, folder: Path, harm: Callable[[], int]) -> None:
    """Jobs before and after end once, and the services live, rest, and have not swollen."""
    diary = str(folder / "diary")
    async with Client.connect(site.settings("dispatcher")) as client:
        before = await client.dispatch(note(diary, "before"))
        assert (await client.wait(before, 60)).state == "completed", site.logs()
        memory, lines = _memory(site), site.log_lines()
        sent = await asyncio.to_thread(harm)
        after = await client.dispatch(note(diary, "after"))
        assert (await client.wait(after, 120)).state == "completed", site.logs()
    await eventually(lambda: _resting(site), 60, "services that rest")
    ended = {child.name: child.exit_code for child in site.children if child.exit_code is not None}
    assert ended == {}, site.logs()
    assert site.log_lines() - lines <= _LINES_A_MESSAGE * sent
    assert _memory(site) - memory < _GROWN_BYTES
    check({each: await _story(site, each) for each in (before, after)}, (before, after))


async def _send_unreadable(site: Site) -> int:
    bodies = (b'{"queue":"\xff"}', b'{"type":"\xff"}', b"[" * 100_000, b'{"type":"GraphStarted"}')
    for role, subjects in UNREADABLE.items():
        messages = [Forged(f"{PREFIX}.{each}", body, {}) for each in subjects for body in bodies]
        await _send(site, role, messages)
    return len(bodies) * sum(map(len, UNREADABLE.values()))


async def test_what_cannot_be_reckoned_with_ends_no_service(site: Site, tmp_path: Path) -> None:
    """One of these ended every orchestrator, decider or metrics service, again at each start."""
    await _survives(site, tmp_path, lambda: asyncio.run(_send_beyond_reckoning(site)))


async def _send_beyond_reckoning(site: Site) -> int:
    for role, bodies in BEYOND_RECKONING.items():
        messages = [
            Forged(f"{PREFIX}.{subject}", _typed(subject, fields), {})
            for subject, fields in bodies.items()
        ]
        await _send(site, role, messages)
    return sum(map(len, BEYOND_RECKONING.values()))


def _typed(subject: str, fields: str) -> bytes:
    kinds = {"snapshots": "HostSnapshot", "beats": "WorkerReport"}
    kind = kinds.get(subject.split(".", maxsplit=1)[0], subject.rpartition(".")[2])
    return f'{{"type":"{kind}",{fields}}}'.encode()


async def _story(site: Site, job_id: str) -> list[Entry]:
    subjects, bus = Subjects("penstock"), await connect(site.settings("operator"))
    stored = await bus.history(subjects.events_stream, subjects.job(job_id))
    await bus.close()
    return [(each.sequence, JOB_EVENTS.decode(each.body)) for each in stored]


def _flood(site: Site, role: str) -> int:
    """Sends what Hypothesis thinks of; returns how many."""
    sent = 0

    @settings(
        max_examples=ROUNDS,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(forged(role), min_size=_A_ROUND, max_size=_A_ROUND))
    def rounds(messages: list[Forged]) -> None:
        nonlocal sent
        sent += len(messages)
        asyncio.run(_send(site, role, messages))

    rounds()
    return sent


async def _send(site: Site, role: str, messages: list[Forged]) -> None:
    client = await join(site.broker, role)
    for each in messages:
        await client.publish(each.subject, each.body, headers=dict(each.headers) or None)
    await client.flush()
    await client.close()


def _processes(site: Site) -> list[psutil.Process]:
    return [psutil.Process(child.pid) for child in site.children]


def _memory(site: Site) -> int:
    return sum(process.memory_info().rss for process in _processes(site))


def _resting(site: Site) -> bool:
    """None of them takes a core for itself."""
    shares = [
        process.cpu_percent(_LOOK_SECONDS / len(site.children)) for process in _processes(site)
    ]
    return bool(max(shares) < 80)


def test_forging_reaches_what_it_aims_at() -> None:
    """The floods are not all rubbish: among them is a command for this host, of a huge epoch."""
    made: list[Forged] = []

    @settings(max_examples=100, derandomize=True, database=None, deadline=None)
    @given(on("commands.*"))
    def look(each: Forged) -> None:
        made.append(each)

    look()
    commands = [each.body for each in made if each.subject == "penstock.commands.test-host"]
    assert any(b'"type":"WorkersScaled"' in body and b'"epoch":9' in body for body in commands)
    assert any(b'"type":"WorkersScaled"' not in body for body in commands)
