"""What a key that only reads can cost the broker; and that our own answers pass."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import nats.errors
import pytest
from nats.aio.client import Client
from tests.integration.guarded import GuardedBroker, join
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.cli.deploy.roles import ROLES

EVENTS, EVENT_BYTES = 26, 700_000
"""As much as the event log of a test takes."""
ALL = "penstock.events.>"
MOST_GROWTH_MB, MOST_SUBSCRIPTIONS = 1_000, 20_000


@pytest.fixture
def settings(settings: MakeSettings) -> MakeSettings:
    settings.prefix = "penstock"
    return settings


async def fill(guarded: GuardedBroker, settings: MakeSettings) -> NatsBus:
    """An owner of the streams, and an event log of large events."""
    owner = await connect(guarded.settings(settings, "orchestrator"), makes_streams=True)
    writer = await join(guarded, "dispatcher")
    if not await owner.last("EVENTS", ALL):
        for number in range(EVENTS):
            subject = f"penstock.events.job.big{number}.JobDispatched"
            answer = await writer.request(subject, os.urandom(EVENT_BYTES), timeout=10)
            assert b'"error"' not in answer.data, answer.data
    await writer.close()
    return owner


def resident_mb(broker: GuardedBroker) -> int:
    assert broker.child
    status = Path(f"/proc/{broker.child.pid}/status").read_text("utf-8")
    [line] = [one for one in status.splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1]) // 1024


async def ask_and_read_nothing(client: Client) -> None:
    inbox = client.new_inbox()
    await client.subscribe(inbox)
    await client.flush()
    assert client._reading_task
    client._reading_task.cancel()
    request = json.dumps({"seq": 1, "next_by_subj": ALL, "batch": 1000}).encode()
    for _ in range(6):
        await client.publish("$JS.API.DIRECT.GET.EVENTS", request, reply=inbox)
    await client._flush_pending()


async def test_what_is_asked_for_and_not_read_is_bounded(
    guarded: GuardedBroker, settings: MakeSettings
) -> None:
    owner = await fill(guarded, settings)
    before = resident_mb(guarded)
    cut_off = guarded.log.count("Slow Consumer")
    clients = [await join(guarded, "subscriber") for _ in range(12)]
    for client in clients:
        await ask_and_read_nothing(client)
    await eventually(
        lambda: guarded.log.count("Slow Consumer") - cut_off >= len(clients), 30, "all cut off"
    )
    assert resident_mb(guarded) - before < MOST_GROWTH_MB
    for client in clients:
        client._transport.close()  # type: ignore[union-attr]
    await owner.close()


async def test_connections_of_a_key_that_only_reads_are_bounded(guarded: GuardedBroker) -> None:
    most = ROLES["subscriber"].connections
    assert most
    clients = [await join(guarded, "subscriber") for _ in range(most)]
    with pytest.raises((nats.errors.Error, OSError)):
        await join(guarded, "subscriber")
    await (await join(guarded, "dispatcher")).close()
    for client in clients:
        await client.close()


async def test_subscriptions_of_a_connection_are_bounded(guarded: GuardedBroker) -> None:
    client = await join(guarded, "subscriber")
    for _ in range(MOST_SUBSCRIPTIONS + 100):
        await client.subscribe(client.new_inbox())
    await eventually(lambda: "maximum subscriptions" in str(client.last_error), 20, "the refusal")


async def test_what_our_own_readers_ask_for_passes(
    guarded: GuardedBroker, settings: MakeSettings
) -> None:
    """20 stories at once, pages of all there is, and a follower, while the process is busy."""
    owner = await fill(guarded, settings)
    cut_off = guarded.log.count("Slow Consumer")
    pages = await asyncio.gather(*(owner.history("EVENTS", ALL, 1000) for _ in range(6)))
    assert [len(page) for page in pages] == [EVENTS] * 6
    ids = [f"penstock.events.job.big{number}.JobDispatched" for number in range(20)]
    stories = await asyncio.gather(*(owner.history("EVENTS", one, 3) for one in ids))
    assert [len(story) for story in stories] == [1] * 20
    sequences = []
    async for message in owner.follow("EVENTS", [ALL], 1):
        sequences.append(message.sequence)
        if len(sequences) == EVENTS:
            break
    assert sequences == sorted(set(sequences))
    assert guarded.log.count("Slow Consumer") == cut_off
    await owner.close()
