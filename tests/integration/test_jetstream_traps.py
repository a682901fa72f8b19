"""What JetStream does to those who do not expect it; `tests/contract/test_traps.py` lists all."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from typing import Any

import pytest
from tests.integration.crew import Crew
from tests.integration.sample_jobs import QUEUE, fail
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Bus, Expect, Outgoing, TooManyBatches
from penstock.bus.streams import streams
from penstock.events.subjects import Subjects
from penstock.jobs.lifecycle import State

MORE_THAN_A_PAGE = 300
"""The API lists 256 consumers at a time."""


async def test_a_job_that_waits_for_its_retry_holds_no_claim(crew: Crew) -> None:
    """A delayed NAK would hold one of the consumer's limited places for all that time."""
    crew.hire()
    job_id = await crew.client.dispatch(fail(diary=crew.diary.path, name="a", times=9))
    await crew.reached(job_id, State.RETRYING)
    await eventually(lambda: _is_empty(crew), 5, "no claim")
    await crew.reached(job_id, State.DEAD)


async def _is_empty(crew: Crew) -> bool:
    depth = await crew.depth(QUEUE)
    return (depth.waiting, depth.claimed) == (0, 0)


@pytest.mark.parametrize("crew", [{"jobs": {"claim_seconds": 30}}], indirect=True)
async def test_fifty_open_batches_keep_nobody_from_recording_failures(crew: Crew) -> None:
    """The server keeps 50 atomic batches open a stream, whoever began them, and refuses others."""
    crew.hire(), crew.hire()
    assert isinstance(crew.bus, NatsBus)
    occupying = asyncio.create_task(_occupy(crew.bus, crew.subjects))
    event = Outgoing(crew.subjects.events("host", "none", "HostNoted"), b'{"type":"HostNoted"}')
    await eventually(lambda: _is_refused(crew.bus, [event, event]), 10, "no batch taken any more")

    calls = [fail(diary=crew.diary.path, name=f"n{n}", times=1) for n in range(51)]
    ids = await crew.client.dispatch_many(calls)
    views = [await crew.ended(job_id) for job_id in ids]

    occupying.cancel()
    assert {view.state for view in views} == {State.COMPLETED}
    once = ["JobDispatched", "JobStarted", "JobFailed", "JobRetrying", "JobStarted", "JobCompleted"]
    assert all([await crew.story(job_id) == once for job_id in ids]), "each attempt once"


async def _occupy(bus: NatsBus, subjects: Subjects) -> None:
    """Keeps as many batches open as the server takes; it drops those not committed in time."""
    subject = subjects.events("host", "none", "HostNoted")
    while True:
        for _ in range(50):
            headers = {"Nats-Batch-Id": uuid.uuid4().hex, "Nats-Batch-Sequence": "1"}
            await bus._client.publish(subject, b'{"type":"HostNoted"}', headers=headers)
        await asyncio.sleep(0.2)


async def _is_refused(bus: Bus, messages: list[Outgoing]) -> bool:
    try:
        await bus.append_atomic(messages)
    except TooManyBatches:
        return True
    return False


async def test_a_record_that_expired_can_be_made_anew_at_once(settings: MakeSettings) -> None:
    """KV's `create` fails as long as the marker of an expired key lives."""
    subjects = Subjects(settings.prefix)
    bus = await connect(settings())
    try:
        record = Outgoing(subjects.key("unique", "a"), b"1", {"Nats-TTL": "1s"}, Expect(0))
        await bus.append(record)
        await eventually(lambda: _gone(bus, subjects), 10, "expiry")
        assert await bus.append(record) > 0
        last = await bus.last(subjects.keys_stream, record.subject)
        assert last is not None
        assert last.body == b"1"
    finally:
        await bus.close()


async def test_a_record_that_is_renewed_still_expires(settings: MakeSettings) -> None:
    """KV's `update` drops the time to live: a lease that was renewed once would live for ever."""
    subjects = Subjects(settings.prefix)
    bus = await connect(settings())
    try:
        lasting = {"Nats-TTL": "1s"}
        record = Outgoing(subjects.key("unique", "a"), b"1", lasting, Expect(0))
        first = await bus.append(record)
        await bus.append(Outgoing(record.subject, b"2", lasting, Expect(first)))
        await eventually(lambda: _gone(bus, subjects), 10, "expiry")
    finally:
        await bus.close()


async def _gone(bus: NatsBus, subjects: Subjects) -> bool:
    return await bus.last(subjects.keys_stream, subjects.key("unique", "a")) is None


async def test_what_an_operator_set_on_a_stream_stays(settings: MakeSettings) -> None:
    """An update sends the whole configuration: what its sender does not know would be reset."""
    subjects = Subjects(settings.prefix)
    bus = await connect(settings())
    try:
        stream = subjects.jobs_stream
        config = (await bus._api(f"STREAM.INFO.{stream}"))["config"]
        own = {"max_msgs": 12_345, "description": "ours", "metadata": {"team": "a"}}
        await bus._api(f"STREAM.UPDATE.{stream}", {**config, **own})
        other = await connect(settings())
        await other.close()
        after = (await bus._api(f"STREAM.INFO.{stream}"))["config"]
        assert {name: after[name] for name in ("max_msgs", "description")} == {
            "max_msgs": 12_345, "description": "ours"
        }  # fmt: skip
        assert after["metadata"]["team"] == "a"
        assert after["allow_msg_schedules"] is True
    finally:
        await bus.close()


async def test_roll_ups_can_be_forbidden_in_all_streams_but_the_jobs(
    settings: MakeSettings,
) -> None:
    """The server turns them on for schedules, which replace each other by them; docs/security.md
    says what that costs. Should a later server let us, this test says so."""
    subjects = Subjects(settings.prefix)
    bus = await connect(settings())
    try:
        allowing = set()
        for stream in streams(settings(), subjects):
            verb = f"STREAM.UPDATE.{stream['name']}"
            config = (await bus._api(f"STREAM.INFO.{stream['name']}"))["config"]
            await bus._api(verb, {**config, "allow_rollup_hdrs": False}, fail=False)
            after = (await bus._api(f"STREAM.INFO.{stream['name']}"))["config"]
            if after["allow_rollup_hdrs"]:
                allowing.add(stream["name"])
        assert allowing == {subjects.jobs_stream}
    finally:
        await bus.close()


async def test_more_queues_than_the_broker_lists_at_a_time(settings: MakeSettings) -> None:
    subjects = Subjects(settings.prefix)
    bus = await connect(settings())
    try:
        names = [f"q{number}" for number in range(MORE_THAN_A_PAGE)]
        for name in names:
            await bus.ensure_queue(name)
        await bus.append(Outgoing(subjects.queue(names[-1]), b"x"))
        depths = await bus.depths()
        assert sorted(depths) == sorted(names)
        assert depths[names[-1]].waiting == 1
    finally:
        await bus.close()


async def test_followers_leave_no_consumer_behind(settings: MakeSettings) -> None:
    """Named, and forgotten by the broker when nobody asks: those of killed processes, too."""
    subjects = Subjects(settings.prefix)
    bus = await connect(settings())
    try:
        await bus.append(Outgoing(subjects.state("lease", "a"), b"x"))
        following: Any = bus.follow(subjects.state_stream, [subjects.state("*", "*")], "all")
        async with aclosing(following) as messages:
            await anext(messages)
            [consumer] = await _consumers(bus, subjects)
        assert consumer["config"]["name"].startswith("f_")
        assert 0 < consumer["config"]["inactive_threshold"] <= 60 * 10**9
        assert not consumer["config"].get("durable_name")
    finally:
        await bus.close()


async def _consumers(bus: NatsBus, subjects: Subjects) -> list[dict[str, Any]]:
    page = await bus._api(f"CONSUMER.LIST.{subjects.state_stream}", {"offset": 0})
    found: list[dict[str, Any]] = page["consumers"]
    return found


def test_nothing_ages_out_of_the_stream_that_schedules_wait_in(settings: MakeSettings) -> None:
    """`max_age` deletes schedules that wait longer; async persist forbids atomic batches."""
    subjects = Subjects(settings.prefix)
    found = {each["name"]: each for each in streams(settings(), subjects)}
    jobs = found[subjects.jobs_stream]
    assert not jobs.get("max_age")
    assert not jobs.get("max_msgs")
    assert found[subjects.events_stream]["allow_atomic"]
    assert all(each.get("persist_mode") in (None, "default") for each in found.values())


async def test_the_broker_is_new_enough_for_what_is_asked_of_it(settings: MakeSettings) -> None:
    """Server fixes of 2.14.5 and 2.15 are built upon; the pinned one is what all tests run on."""
    bus = await connect(settings())
    try:
        assert tuple(map(int, bus.server_version.split("-")[0].split("."))) >= (2, 15, 1)
        assert (await bus.account())["api"]["level"] >= 2
    finally:
        await bus.close()
