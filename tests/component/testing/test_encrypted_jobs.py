"""Encrypted jobs, checkpoints and masked fields through the real worker, on the bus in memory."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.component.testing.key_files import write

from penstock.config import Settings
from penstock.config.load import check
from penstock.events.envelope import encode
from penstock.events.job import JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs import Backoff, Client, Context, JobType, awaiting, job, registry
from penstock.jobs.errors import MissingKey
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.encryption import KeyRing, about_arguments, is_sealed
from penstock.jobs.queues import queue_messages
from penstock.jobs.queues.queue_messages import Outgoing
from penstock.testing import Bench

SECRET = "4111-1111-1111-1111"
SEEN: list[Any] = []
AT_ONCE = Backoff(first_seconds=0)


@job(encrypted=True, masked=["card"])
def charge(card: str) -> dict[str, str]:
    SEEN.append(card)
    return {"charged": card}


@job(encrypted=True)
def archive(receipt: dict[str, str]) -> str:
    SEEN.append(receipt)
    return receipt["charged"]


@job
def publish(receipt: dict[str, str]) -> int:
    SEEN.append(receipt)
    return len(receipt)


@job(tries=3, backoff=AT_ONCE, encrypted=True)
def import_rows(context: Context, rows: int) -> int:
    done = context.checkpoint.restore(int) or 0
    SEEN.append(("from", done))
    while context.checkpoint.has_more_work:
        done += 10
        context.checkpoint.save(done, has_more_work=done < rows)
        if done == 30 * context.attempt:
            raise ConnectionError("the source is away")
    return done


@job(tries=1)
def save_much(context: Context, size: int) -> None:
    context.checkpoint.save(b"x" * size)


JOBS: list[JobType[Any, Any]] = [charge, archive, publish, import_rows, save_much]


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    SEEN.clear()
    registry.REGISTRY.update({each.name: each for each in JOBS})
    yield
    for each in JOBS:
        registry.REGISTRY.pop(each.name, None)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    write(path, "first")
    return path


@pytest.fixture
def penstock_settings(keys: Path) -> Settings:
    return check({"encryption": {"key_file": str(keys)}, "jobs": {"max_checkpoint_bytes": 1000}})


def everything(bench: Bench) -> bytes:
    """All that the broker holds."""
    subjects = bench.bus.subjects
    streams = (
        subjects.jobs_stream, subjects.events_stream, subjects.dead_stream,
        subjects.state_stream, subjects.checkpoints_stream,
    )  # fmt: skip
    found = [each for stream in streams for each in bench.bus.stored(stream, ">")]
    return b"".join(each.body for each in found)


async def test_the_broker_never_sees_the_arguments_nor_the_result(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(charge(card=SECRET))
    before = everything(penstock)
    await penstock.run_pending()
    for stored in (before, everything(penstock)):
        assert stored
        assert SECRET.encode() not in stored
        assert base64.b64encode(SECRET.encode())[:20] not in stored
    assert SEEN == [SECRET]
    assert (await penstock.client.job(job_id)).result == {"charged": SECRET}


async def test_old_keys_still_open(penstock: Bench, keys: Path) -> None:
    job_id = await penstock.client.dispatch(charge(card=SECRET))
    write(keys, "second", "first")
    await penstock.run_pending()
    assert SEEN == [SECRET]
    result = (await penstock.client.job(job_id)).record.result
    assert b"second" in result


async def test_a_client_without_keys_cannot_read_and_says_so(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(charge(card=SECRET))
    await penstock.run_pending()
    blind = Client.over(penstock.bus.client(), check({}))
    with pytest.raises(MissingKey, match="need key 'first', known keys: none"):
        _ = (await blind.job(job_id)).result
    with pytest.raises(MissingKey, match="nothing can be encrypted"):
        await blind.dispatch(charge(card=SECRET))


async def test_a_missing_key_uses_up_no_attempt(penstock: Bench, keys: Path) -> None:
    job_id = await penstock.client.dispatch(charge(card=SECRET))
    write(keys, "second")
    assert await penstock.run_pending() == 0
    view = await penstock.client.job(job_id)
    assert (view.state, view.attempts) == (State.WAITING, 0)
    write(keys, "second", "first")
    await penstock.advance(16)
    assert await penstock.run_pending() == 1
    assert (await penstock.client.job(job_id)).attempts == 1


class TestWithoutTheKey:
    """The worker has another key than the client; see `encryption.missing_key_seconds`."""

    @pytest.fixture
    def penstock_settings(self, keys: Path) -> Settings:
        return check({"encryption": {"key_file": str(keys), "missing_key_seconds": 30}})

    async def test_a_job_that_waited_too_long_is_dead_and_can_be_retried(
        self, penstock: Bench, keys: Path
    ) -> None:
        job_id = await penstock.client.dispatch(charge(card=SECRET))
        write(keys, "second")
        for _ in range(5):
            await penstock.run_pending()
            await penstock.advance(20)
        view = await penstock.client.job(job_id)
        assert (view.state, view.error.kind, view.attempts) == (State.DEAD, "missing-key", 0)
        assert "need key 'first', known keys: second" in view.error.message
        write(keys, "second", "first")
        await penstock.client.dead.retry(job_id)
        await penstock.run_pending()
        assert (await penstock.client.job(job_id)).state is State.COMPLETED

    async def test_an_expired_one_is_cancelled(self, penstock: Bench, keys: Path) -> None:
        job_id = await penstock.client.dispatch(charge(card=SECRET), expires=0.001)
        write(keys, "second")
        await penstock.run_pending()
        view = await penstock.client.job(job_id)
        assert (view.state, view.events[-1][1].cause) == (State.CANCELLED, "expired")  # type: ignore[union-attr]

    @pytest.mark.parametrize("expires_at", [0.0, 1.0], ids=["never expires", "expired"])
    async def test_one_that_was_never_dispatched_does_not_wait(
        self, penstock: Bench, expires_at: float
    ) -> None:
        ring = KeyRing({"nobody has it": bytes(32)})
        call = payload.Payload(
            id="ghost", function=charge.name, queue="default", arguments=msgspec.Raw(b"\x80"),
            dispatched_at=0.0, expires_at=expires_at,
        )  # fmt: skip
        box = msgspec.Raw(ring.seal(call.arguments, about_arguments(call)))
        body = payload.encode(msgspec.structs.replace(call, arguments=box))
        subjects = Subjects()
        headers = queue_messages.headers("ghost", 1, 1, {})
        await penstock.bus.append(Outgoing(subjects.queue("default"), body, headers))
        await penstock.run_pending()
        [letter] = penstock.bus.stored(subjects.dead_stream, ">")
        assert b"no event of this job exists" in letter.body
        assert not penstock.bus.stored(subjects.jobs_stream, ">")


async def test_plain_arguments_are_refused_where_encrypted_ones_are_declared(
    penstock: Bench,
) -> None:
    """Somebody who can write to the broker, and holds no key, calls an encrypted job."""
    call = payload.Payload(
        id="forged", function=charge.name, queue="default", dispatched_at=0.0,
        arguments=msgspec.Raw(charge(card="mine").arguments),
    )  # fmt: skip
    await forge(penstock, call)
    view = await penstock.client.job("forged")
    assert (view.state, view.error.kind, view.attempts) == (State.DEAD, "not-encrypted", 0)
    assert SEEN == []


async def test_a_forged_step_does_not_open_the_result_of_another(penstock: Bench) -> None:
    chain = await penstock.client.graphs.chain([charge(card=SECRET), awaiting(archive, "receipt")])
    await penstock.run_pending()
    result = (await penstock.client.graphs.step(chain, "1 charge")).record.result
    call = payload.Payload(
        id=f"{chain}_step_9", function=publish.name, queue="default", dispatched_at=0.0,
        arguments=msgspec.Raw(msgspec.msgpack.encode({})),
        handed={"receipt": msgspec.Raw(result)},
    )  # fmt: skip
    SEEN.clear()
    await forge(penstock, call)
    view = await penstock.client.job(call.id)
    assert (view.state, view.error.kind, SEEN) == (State.DEAD, "undecryptable", [])


async def forge(bench: Bench, call: payload.Payload) -> None:
    """Dispatches a call as somebody does who may write to the broker, and lets it run."""
    body, subjects = payload.encode(call), Subjects()
    event = JobDispatched(job_id=call.id, queue=call.queue, function=call.function, payload=body)
    at = await bench.bus.append(Outgoing(subjects.event(event), encode(event)))
    headers = queue_messages.headers(call.id, at, 1, {})
    await bench.bus.append(Outgoing(subjects.queue(call.queue), body, headers))
    await bench.run_pending()


async def test_arguments_of_another_job_are_not_run(penstock: Bench) -> None:
    """Somebody who can write to the broker gives one job the sealed arguments of another."""
    job_id = await penstock.client.dispatch(charge(card=SECRET))
    record = (await penstock.client.job(job_id)).record
    stolen = msgspec.structs.replace(payload.decode(record.payload), id="forged")
    event = JobDispatched(
        job_id="forged", queue=record.queue, function=record.function,
        payload=payload.encode(stolen),
    )  # fmt: skip
    subjects = Subjects()
    at = await penstock.bus.append(Outgoing(subjects.event(event), encode(event)))
    headers = queue_messages.headers("forged", at, 1, {})
    await penstock.bus.append(Outgoing(subjects.queue(record.queue), event.payload, headers))
    await penstock.run_pending()
    view = await penstock.client.job("forged")
    assert (view.state, view.error.kind, view.attempts) == (State.DEAD, "undecryptable", 0)
    assert SEEN == [SECRET]


async def test_sealed_results_are_handed_on(penstock: Bench) -> None:
    chain = await penstock.client.graphs.chain(
        [charge(card=SECRET), awaiting(archive, "receipt")], then=charge(card=SECRET)
    )
    other = await penstock.client.graphs.chain([charge(card=SECRET), awaiting(publish, "receipt")])
    await penstock.run_pending()
    assert (await penstock.client.graphs.step(chain, "2 archive")).result == SECRET
    published = await penstock.client.graphs.step(other, "2 publish")
    assert published.result == 1
    assert is_sealed(published.record.result)  # the job is not marked; what it was given is sealed
    assert SEEN.count(SECRET) == 3
    assert SECRET.encode() not in everything(penstock)


async def test_a_batch_of_encrypted_jobs(penstock: Bench) -> None:
    await penstock.client.batches.create([charge(card=SECRET)] * 3, then=charge(card=SECRET))
    await penstock.run_pending()
    assert penstock.batches[0].counts.completed == 3
    assert SEEN == [SECRET] * 4


class TestEverything:
    @pytest.fixture
    def penstock_settings(self, keys: Path) -> Settings:
        return check({"encryption": {"key_file": str(keys), "every_job": True}})

    async def test_jobs_that_are_not_marked_are_encrypted_too(self, penstock: Bench) -> None:
        await penstock.client.dispatch(publish(receipt={"charged": SECRET}))
        await penstock.run_pending()
        assert SEEN == [{"charged": SECRET}]
        assert SECRET.encode() not in everything(penstock)


# --- checkpoints ----------------------------------------------------------------------------------
async def test_an_attempt_goes_on_from_the_checkpoint_of_the_one_before(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(import_rows(rows=80))
    await penstock.run_pending()
    assert SEEN == [("from", 0), ("from", 30), ("from", 60)]
    assert (await penstock.client.job(job_id)).result == 80
    subjects = penstock.bus.subjects
    assert not penstock.bus.stored(subjects.checkpoints_stream, ">")


async def test_a_dead_job_that_is_retried_goes_on_from_its_checkpoint(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(import_rows(rows=100))
    await penstock.run_pending()
    assert (await penstock.client.job(job_id)).state is State.DEAD
    SEEN.clear()
    await penstock.client.retry(job_id)
    await penstock.run_pending()
    assert SEEN == [("from", 90)]
    assert (await penstock.client.job(job_id)).result == 100


async def test_a_checkpoint_that_is_too_large_is_refused(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(save_much(size=2000))
    await penstock.run_pending()
    error = (await penstock.client.job(job_id)).error
    assert "2003 bytes, jobs.max_checkpoint_bytes allows 1000" in error.message
