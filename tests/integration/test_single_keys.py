"""One key for a host, an application or a team: bound to it, revocable alone, apart from others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import nats.errors
import pytest
from tests.integration.guarded import GuardedBroker, join
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import BusRefused, BusUnavailable, Outgoing
from penstock.cli.deploy import keys
from penstock.cli.deploy.accounts import Key
from penstock.cli.errors import Failed
from penstock.events.subjects import Subjects

EVENT = "penstock.events.job.j.JobDispatched"


@pytest.fixture
async def guarded(tmp_path: Path, settings: MakeSettings) -> AsyncIterator[GuardedBroker]:
    settings.prefix = "penstock"
    broker = GuardedBroker(tmp_path)
    add(broker, "executor", "executor-h1", host="h1")
    add(broker, "worker", "mailer", queues=("mail",), host="h1")
    add(broker, "dispatcher", "shop", queues=("mail",))
    with broker:
        yield broker


@pytest.fixture
async def owner(guarded: GuardedBroker, settings: MakeSettings) -> AsyncIterator[NatsBus]:
    bus = await connect(guarded.settings(settings, "orchestrator"))
    bus.queues.makes_consumers = True
    yield bus
    await bus.close()


def add(
    broker: GuardedBroker,
    role: str,
    name: str,
    prefix: str = "penstock",
    host: str = "",
    queues: tuple[str, ...] = (),
) -> None:
    key = Key(name=name, role=role, public="", prefix=prefix, host=host, queues=queues)
    keys.add(broker.secrets, key)


@pytest.mark.parametrize(
    ("name", "permitted", "refused"),
    [
        (
            "executor-h1",
            ["penstock.snapshots.host.h1", "penstock.events.host.h1.HostJoined"],
            ["penstock.snapshots.host.h2", "penstock.events.host.h2.HostJoined"],
        ),
        (
            "mailer",
            ["penstock.beats.worker.h1.w", "$JS.API.CONSUMER.MSG.NEXT.JOBS.q_mail"],
            [
                "penstock.beats.worker.h2.w",
                "$JS.API.CONSUMER.MSG.NEXT.JOBS.q_reports",
                "$JS.ACK.JOBS.q_reports.1.1.1.1.1",
            ],
        ),
        (
            "shop",
            ["penstock.jobs.mail", "penstock.schedules.mail.j"],
            ["penstock.jobs.reports", "penstock.schedules.reports.j"],
        ),
    ],
)
async def test_a_key_speaks_for_its_host_and_queues_alone(
    guarded: GuardedBroker, owner: NatsBus, name: str, permitted: list[str], refused: list[str]
) -> None:
    errors: list[str] = []
    client = await join(guarded, name, errors)
    for subject in [*permitted, *refused]:
        await client.publish(subject, b"{}")
    await eventually(lambda: len(errors) >= len(refused), 5, "refusals")
    denied = [s for s in [*permitted, *refused] if any(f'"{s.lower()}"' in e for e in errors)]
    assert denied == refused
    await client.close()


async def test_a_bound_worker_takes_and_acknowledges_its_jobs(
    guarded: GuardedBroker, owner: NatsBus, settings: MakeSettings
) -> None:
    await owner.queues.make("mail")
    shop = await connect(guarded.settings(settings, "shop"))
    mailer = await connect(guarded.settings(settings, "mailer"))
    await shop.append(Outgoing("penstock.jobs.mail", b"letter"))
    [taken] = await mailer.puller("mail").fetch(1, 5)
    assert taken.body == b"letter"
    await mailer.extend([taken])
    await mailer.ack([taken])

    async def is_gone() -> bool:
        return await owner.last("JOBS", "penstock.jobs.mail") is None

    await eventually(is_gone, 5, "the acknowledged job")
    assert guarded.violations() == []
    for bus in (shop, mailer):
        await bus.close()


async def test_a_revoked_key_is_refused_and_the_others_stay_connected(
    guarded: GuardedBroker, owner: NatsBus, settings: MakeSettings
) -> None:
    await owner.queues.make("mail")
    heard: list[str] = []
    staying = await connect(guarded.settings(settings, "dispatcher"))
    mailer = await connect(guarded.settings(settings, "mailer"))
    await staying.listen("penstock.events.job.>", lambda subject, _: heard.append(subject))
    revoked = await connect(guarded.settings(settings, "shop"))
    await revoked.append(Outgoing("penstock.jobs.mail", b"before"))
    connection = staying._client.client_id

    keys.revoke(guarded.secrets, "penstock", "shop")
    add(guarded, "dispatcher", "market")
    await guarded.reload()

    with pytest.raises((BusUnavailable, BusRefused)):
        await revoked.append(Outgoing("penstock.jobs.mail", b"after"))
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        await join(guarded, "shop")
    assert (staying.connected, staying._client.client_id) == (True, connection)
    market = await connect(guarded.settings(settings, "market"))
    await market.append(Outgoing(EVENT, b"{}"))
    await eventually(lambda: heard == [EVENT], 5, "an event of the new key")
    assert await staying.append(Outgoing("penstock.jobs.mail", b"still"))
    taken = await mailer.puller("mail").fetch(5, 5)
    assert [one.body for one in taken] == [b"before", b"still"]
    await mailer.ack(taken)
    for bus in (staying, mailer, market, revoked):
        await bus.close()


async def test_two_teams_on_one_broker_are_kept_apart(
    guarded: GuardedBroker, owner: NatsBus, settings: MakeSettings
) -> None:
    for role in ("orchestrator", "dispatcher", "worker"):
        add(guarded, role, role, prefix="other")
    await guarded.reload()
    settings.prefix = "other"
    theirs = await connect(guarded.settings(settings, "other/orchestrator"))
    settings.prefix = "penstock"
    assert {info["config"]["name"].split("_")[0] for info in await theirs.stream_states()} == {
        "other"
    }
    mine = await owner.append(Outgoing("penstock.jobs.mail", b"mine"))
    errors: list[str] = []
    stranger = await join(guarded, "other/dispatcher", errors)
    for subject in ("penstock.jobs.mail", EVENT, "$JS.API.STREAM.INFO.JOBS"):
        await stranger.publish(subject, b"{}")
    await eventually(lambda: len(errors) == 3, 5, "refusals")
    for subject in ("penstock.jobs.mail", EVENT, "$JS.API.STREAM.PURGE.JOBS"):
        await stranger.publish("$JS.API.STREAM.INFO.other_EVENTS", b"", reply=subject)
    await stranger.request("$JS.API.STREAM.INFO.other_EVENTS", b"")
    last = await owner.last("JOBS", Subjects().queue("mail"))
    assert last is not None
    assert (last.sequence, last.body) == (mine, b"mine")
    await stranger.close()
    await theirs.close()


async def test_a_team_that_fills_its_storage_takes_no_room_from_the_others(
    guarded: GuardedBroker, owner: NatsBus, settings: MakeSettings
) -> None:
    for role in ("orchestrator", "dispatcher"):
        add(guarded, role, role, prefix="other")
    keys.limit(guarded.secrets, "other", 200_000_000)
    add(guarded, "operator", "operator", prefix="other")  # keeps the limit
    await guarded.reload()
    settings.prefix = "other"
    theirs = await connect(guarded.settings(settings, "other/orchestrator"), makes_streams=True)
    settings.prefix = "penstock"
    filler = await join(guarded, "other/dispatcher")
    for _ in range(30):
        answer = await filler.request("other.jobs.mail", bytes(7_000_000), timeout=10)
        if b'"error"' in answer.data:
            break
    assert b"resource limits exceeded for account" in answer.data
    await owner.append(Outgoing("penstock.jobs.mail", b"mine"))
    await filler.close()
    await theirs.close()


def test_a_limit_is_of_an_installation_that_has_keys(tmp_path: Path) -> None:
    secrets = GuardedBroker(tmp_path).secrets
    with pytest.raises(Failed, match="no key of prefix other; it has keys of penstock"):
        keys.limit(secrets, "other", 1)
    keys.limit(secrets, "penstock", 5)
    assert keys.limits(secrets) == {"penstock": 5}
    keys.limit(secrets, "penstock", 0)
    assert keys.limits(secrets) == {}


def test_a_name_is_given_once_and_only_known_keys_are_revoked(tmp_path: Path) -> None:
    broker = GuardedBroker(tmp_path)
    add(broker, "dispatcher", "shop")
    with pytest.raises(Failed, match="already"):
        add(broker, "worker", "shop")
    with pytest.raises(Failed, match="has no key market"):
        keys.revoke(broker.secrets, "penstock", "market")
    with pytest.raises(Failed, match="expected a folder that"):
        keys.listed(tmp_path)


def test_keys_that_are_made_and_revoked_at_once_are_all_as_they_were_asked_for(
    tmp_path: Path,
) -> None:
    secrets = tmp_path / "secrets"
    keys.write(secrets, "penstock", ["127.0.0.1"], datetime.now(UTC), 2)
    keys.add(secrets, Key(name="old", role="dispatcher", public=""))
    names = [f"new{number}" for number in range(8)]
    with ThreadPoolExecutor(len(names) + 1) as threads:
        revoked = threads.submit(keys.revoke, secrets, "penstock", "old")
        for name in names:
            threads.submit(keys.add, secrets, Key(name=name, role="worker", public=""))
    listed = keys.listed(secrets)
    assert {key.name for key in listed} & {"old", *names} == set(names)
    configuration = (secrets / "nats/accounts.conf").read_text("utf-8")
    assert all(key.public in configuration for key in listed)
    assert revoked.result().public not in configuration
