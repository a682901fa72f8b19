"""No reader can use up the consumers of a stream, of which the broker allows a thousand."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from tests.contract.setting import bodies, numbered, take
from tests.integration.guarded import GuardedBroker, join
from tests.making import MakeSettings

from penstock.bus import streams
from penstock.bus.nats import NatsBus, connect
from penstock.cli.deploy.roles import ROLES

STREAM, SUBJECT = "EVENTS", "penstock.events.job.j.JobStarted"
MORE_THAN_ALL = 1_100
READERS = [name for name, role in ROLES.items() if role.reads and STREAM not in role.follows]


@pytest.fixture
async def owner(guarded: GuardedBroker, settings: MakeSettings) -> AsyncIterator[NatsBus]:
    """The orchestrator, which follows the event log by a consumer."""
    settings.prefix = "penstock"
    bus = await connect(guarded.settings(settings, "orchestrator"))
    bus.reader.makes_consumers = True
    yield bus
    await bus.close()


def test_readers_are_those_who_serve_nothing() -> None:
    assert {"subscriber", "dispatcher", "worker", "operator", "executor"} <= {*READERS}


@pytest.mark.parametrize("role", READERS)
async def test_a_reader_leaves_room_for_those_who_must_follow(
    guarded: GuardedBroker, owner: NatsBus, role: str
) -> None:
    [first] = await owner.append_many(numbered(SUBJECT, 1))
    before = await _consumers(owner)
    client = await join(guarded, role)
    for number in range(MORE_THAN_ALL):
        name = f"{role}_{number}"
        config = {"name": name, "durable_name": name, "ack_policy": "none"}
        for subject in (f"CREATE.{STREAM}.{name}", f"DURABLE.CREATE.{STREAM}.{name}"):
            body = json.dumps({"stream_name": STREAM, "config": config}).encode()
            await client.publish(f"$JS.API.CONSUMER.{subject}", body, reply=client.new_inbox())
    await client.request(f"$JS.API.STREAM.INFO.{STREAM}", timeout=10)
    assert await _consumers(owner) == before
    following: Any = owner.follow(STREAM, [SUBJECT], int(first))
    async with aclosing(following) as messages:
        assert bodies(await take(messages, 1)) == [b"0"]
    await client.close()


async def test_a_subscriber_follows_all_the_same(
    guarded: GuardedBroker, owner: NatsBus, settings: MakeSettings
) -> None:
    reader = await connect(guarded.settings(settings, "subscriber"))
    [first] = await owner.append_many(numbered(SUBJECT, 1))
    following: Any = reader.follow(STREAM, ["penstock.events.job.*.*"], int(first))
    async with aclosing(following) as messages:
        assert bodies(await take(messages, 1)) == [b"0"]
        await owner.append_many(numbered(SUBJECT, 300))
        assert len(await take(messages, 300)) == 300
    assert reader.violations == 0
    await reader.close()


async def test_what_a_service_makes_for_ever_goes_when_it_is_idle(
    guarded: GuardedBroker, owner: NatsBus
) -> None:
    client = await join(guarded, "pipeline")
    limit = streams.CONSUMER_IDLE_SECONDS * 1_000_000_000
    lasting = {"name": "lasting", "durable_name": "lasting", "ack_policy": "none"}
    made = await _make(client, lasting)
    assert made["config"]["inactive_threshold"] == limit
    refused = await _make(client, {**lasting, "inactive_threshold": 10 * limit})
    assert "inactive threshold" in refused["error"]["description"]
    await client.close()


async def _make(client: Any, config: dict[str, Any]) -> dict[str, Any]:
    body = json.dumps({"stream_name": STREAM, "config": config}).encode()
    answer = await client.request(f"$JS.API.CONSUMER.CREATE.{STREAM}.{config['name']}", body)
    return dict(json.loads(answer.data))


async def _consumers(bus: NatsBus) -> int:
    info = await bus._api(f"STREAM.INFO.{STREAM}")
    return int(info["state"]["consumer_count"])
