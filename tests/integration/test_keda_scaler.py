"""The external scaler, called as KEDA calls it: a real decider, a real broker, no host of ours."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator

import grpc
import pytest
from tests.buses import both
from tests.integration.keda import (
    BUSY,
    WITHIN,
    Keda,
    Site,
    answered,
    reference_of,
    refused,
    refused_at_last,
)
from tests.waiting import eventually

from penstock.decider.scaler import protocol
from penstock.events.scaling import ScalingDecisionMade
from penstock.runtime import children
from penstock.runtime.paths import free_port


@pytest.fixture(params=both("memory"))
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    site = Site(request.param, request.getfixturevalue("settings"))
    await site.open()
    try:
        await site.start_scaler()
        yield site
    finally:
        await site.close()


@pytest.fixture
async def keda(site: Site) -> AsyncIterator[Keda]:
    async with Keda(f"127.0.0.1:{site.port}") as keda:
        yield keda


# --- answers -------------
async def test_the_demand_is_answered_though_no_host_of_ours_could_carry_it(site, keda) -> None:
    await site.start()
    await site.measure(**BUSY)
    await answered(keda.pods, 10)
    assert await keda.is_active()
    assert await keda.pods(workersPerPod="4") == 3
    made = site.events(ScalingDecisionMade, pool="emails")[-1]
    assert (made.target, made.advice) == (0, True)  # of our own hosts, which are none
    await site.measure()
    await answered(keda.pods, 0)
    assert not await keda.is_active()


async def test_pods_that_work_are_not_scaled_away(site, keda) -> None:
    """Kubernetes does not choose idle pods to end: there have to be as many as jobs in work."""
    await site.start()
    await site.measure(waiting=3, running=7, oldest_waiting_seconds=1.0)
    await answered(keda.pods, 7)
    await site.measure(running=6)
    await answered(keda.pods, 6)
    await site.measure()
    await answered(keda.pods, 0)


async def test_the_bytes_are_those_of_keda_s_protocol(site, keda) -> None:
    """Encoded by hand after the .proto file: fields 1 to 3, a map as pairs, a varint, a double."""
    await site.start()
    await site.measure(**BUSY)
    await answered(keda.pods, 10)
    reference = b"\x0a\x04shop\x12\x02ns\x1a\x0e\x0a\x04pool\x12\x06emails"
    assert await keda.call("IsActive", reference, bytes) == b"\x08\x01"
    name = b"\x0a\x0fpenstock-emails"
    one = b"\x10\x01\x19\x00\x00\x00\x00\x00\x00\xf0\x3f"
    spec = name + one
    expected = b"\x0a" + bytes([len(spec)]) + spec
    assert await keda.call("GetMetricSpec", reference, bytes) == expected
    asked = b"\x0a" + bytes([len(reference)]) + reference + b"\x12\x0fpenstock-emails"
    ten = name + b"\x10\x0a\x19\x00\x00\x00\x00\x00\x00\x24\x40"
    assert await keda.call("GetMetrics", asked, bytes) == b"\x0a" + bytes([len(ten)]) + ten


# --- no answer is better than a wrong one -------------
async def test_old_measurements_are_no_answer(site, keda) -> None:
    await site.start()
    await site.measure(**BUSY)
    await answered(keda.pods, 10)
    site.silence()
    assert await refused_at_last(keda.pods, "plan stands") is grpc.StatusCode.UNAVAILABLE
    code, text = await refused(keda.is_active)
    assert (code, "plan stands" in text) == (grpc.StatusCode.UNAVAILABLE, True)
    await site.measure(**BUSY)
    await answered(keda.pods, 10)


async def test_without_a_decider_there_is_no_answer_and_with_the_next_one_there_is(
    site, keda
) -> None:
    assert "no decision on pool 'emails' yet" in (await refused(keda.pods))[1]
    first = await site.start()
    await site.measure(**BUSY)
    await answered(keda.pods, 10)
    stream = keda.stream()
    assert (await asyncio.wait_for(stream.read(), WITHIN)).result
    await site.freeze(first)
    assert await refused_at_last(keda.is_active, "s old") is grpc.StatusCode.UNAVAILABLE
    await site.start()
    await answered(keda.pods, 10)
    await site.measure()
    await answered(keda.pods, 0)
    await site.measure(**BUSY)
    assert (await asyncio.wait_for(stream.read(), WITHIN)).result  # the stream outlived it
    stream.cancel()


@pytest.mark.parametrize(
    ("metadata", "code", "text"),
    [
        ({"pool": "emais"}, "NOT_FOUND", "no pool 'emais'; did you mean 'emails'?"),
        ({"pool": "own"}, "FAILED_PRECONDITION", "set advisor = true"),
        ({"pool": ""}, "INVALID_ARGUMENT", "expected the name of a pool"),
        ({"pool": "a.>"}, "INVALID_ARGUMENT", "found pool = 'a.>'"),
        ({"pool": "emails", "workersPerPod": "0"}, "INVALID_ARGUMENT", "workersPerPod = '0'"),
        (
            {"pool": "emails", "workers_per_pod": "4"},
            "INVALID_ARGUMENT",
            "'workersPerPod'",
        ),
        ({"pool": "emails", "workersPerPod": "-1"}, "INVALID_ARGUMENT", "expected 1 to 9999"),
    ],
)
async def test_wrong_triggers_are_refused_with_the_reason(site, keda, metadata, code, text) -> None:
    found = await refused(lambda: keda.pods(**metadata))
    assert (found[0].name, text in found[1]) == (code, True), found
    if len(metadata) == 1:
        stream = keda.stream(metadata["pool"])
        found = await refused(lambda: asyncio.wait_for(stream.read(), WITHIN))
        assert (found[0].name, text in found[1]) == (code, True), found


async def test_messages_are_bounded(site, keda) -> None:
    code, _ = await refused(lambda: keda.is_active("x" * 100_000))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    asked = protocol.GetMetricsRequest(
        scaledObjectRef=reference_of("emails"), metricName="y" * 1_000
    )
    code, text = await refused(lambda: keda.call("GetMetrics", asked))
    assert (code, len(text) < 300) == (grpc.StatusCode.INVALID_ARGUMENT, True)


# --- streams -------------
async def test_a_stream_reports_each_awakening_at_once_and_nothing_else(site, keda) -> None:
    await site.start()
    await site.measure()
    await answered(keda.pods, 0)
    stream = keda.stream()
    reads = asyncio.ensure_future(stream.read())
    for _ in range(2):
        await site.measure(**BUSY)
        assert (await asyncio.wait_for(reads, WITHIN)).result
        reads = asyncio.ensure_future(stream.read())
        await site.decided(3)  # equal ones and such with more are no news
        assert not reads.done()
        await site.measure()
        await answered(keda.pods, 0)
    assert not reads.done()
    stream.cancel()
    await asyncio.gather(reads, return_exceptions=True)


async def test_a_thousand_streams_wake_and_no_more_are_taken(settings) -> None:
    site = Site("nats", settings, max_streams=1_000)
    await site.open()
    try:
        await site.start_scaler()
        await site.start()
        await site.measure()
        for round_of_streams in range(2):  # those of a caller that is gone make room
            async with Keda(f"127.0.0.1:{site.port}") as keda:
                await answered(keda.pods, 0)
                streams = [keda.stream() for _ in range(1_000)]
                reads = [asyncio.ensure_future(stream.read()) for stream in streams]
                await eventually(lambda: one_more_is_refused(keda), WITHIN, "limit of streams")
                await site.measure(**BUSY)
                answers = await asyncio.wait_for(asyncio.gather(*reads), 2 * WITHIN)
                assert all(answer.result for answer in answers), round_of_streams
                await site.measure()
                await answered(keda.pods, 0)
    finally:
        await site.close()


async def one_more_is_refused(keda: Keda) -> bool:
    stream = keda.stream()
    try:
        await asyncio.wait_for(stream.read(), 0.2)
    except TimeoutError:
        return False
    except grpc.aio.AioRpcError as error:
        return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    finally:
        stream.cancel()
    return False


# --- as a process -------------
async def test_the_process_reloads_its_settings_and_ends_in_order(settings, tmp_path) -> None:
    site = Site("nats", settings)
    await site.open()
    file = tmp_path / "penstock.toml"
    text = f'prefix = "{site.settings.prefix}"\nnats.url = "{site.settings.nats.url}"\n'
    text += "decider.repeat_seconds = 0.0\n[pools.emails]\nadvisor = true\n"
    file.write_text(f"{text}[scaler]\nport = {site.port}\n")
    argv = [sys.executable, "-m", "penstock.cli.main", "scaler", "--config", str(file)]
    child = children.start(argv, name="scaler", log=tmp_path / "scaler.log")
    site.processes.append(child)
    try:
        await site.start()
        await site.measure(**BUSY)
        async with Keda(f"127.0.0.1:{site.port}") as keda:
            await answered(keda.pods, 10)
        moved = free_port()
        file.write_text(f"{text}[scaler]\nport = {moved}\n")
        child.signal(signal.SIGHUP)
        async with Keda(f"127.0.0.1:{moved}") as keda:
            await answered(keda.pods, 10)
        assert await child.stop() == 0
    finally:
        await site.close()
