"""Kind `sqs`, against moto's server; messages are put and taken by boto3."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sqs_server import KEY_ID, REGION, SECRET_KEY, SqsServer, sqs_server

from penstock.config.load import ConfigError
from penstock.config.load import check as settings_of
from penstock.config.sources import SourceTable
from penstock.config.topology import pools
from penstock.metrics.core.sources.arrivals import arrivals
from penstock.metrics.sources import QueueSource, SourceAway, SourceFault, SourceLook
from penstock.metrics.sources.registry import doubts, faults, open_source
from penstock.testing.sources import SourceContract

pytest.importorskip("aiobotocore")


class Queue:
    """A queue and its consumer, which holds handles of what it took."""

    queue, absent = "mail", "none-such"
    counts_claims, knows_age = True, False

    def __init__(self, server: SqsServer, folder: Path) -> None:
        self.server = server
        self.taken: list[str] = []
        self.secret = folder / "secret"
        self.secret.write_text(f"{KEY_ID}:{SECRET_KEY}")
        self.secret.chmod(0o600)
        self.make()

    def make(self, name: str = "mail", **attributes: str) -> str:
        made = self.server.call("create_queue", QueueName=name, Attributes=attributes)
        self.url: str = made["QueueUrl"]
        return self.url

    def open(self, **more: Any) -> QueueSource:
        settings = {"url": self.server.url, "secret_file": str(self.secret), **more}
        return open_source("shop", SourceTable(kind="sqs", options={"region": REGION}, **settings))

    async def put(self, count: int, **more: Any) -> None:
        for _ in range(count):
            self.server.call("send_message", QueueUrl=self.url, MessageBody="body", **more)

    async def take(self, count: int) -> None:
        wanted = len(self.taken) + count
        while len(self.taken) < wanted:
            most = min(wanted - len(self.taken), 10)
            answer = self.server.call(
                "receive_message", QueueUrl=self.url, MaxNumberOfMessages=most
            )
            self.taken += [message["ReceiptHandle"] for message in answer["Messages"]]

    async def end(self, count: int) -> None:
        for _ in range(count):
            handle = self.taken.pop()
            self.server.call("delete_message", QueueUrl=self.url, ReceiptHandle=handle)

    async def stop(self) -> None:
        self.server.kill()

    async def start(self) -> None:
        self.server.start()
        self.make()

    async def connections(self) -> int:
        return self.server.connections()


@pytest.fixture(scope="module")
def server() -> Iterator[SqsServer]:
    with sqs_server() as server:
        yield server


@pytest.fixture
def system(server, tmp_path) -> Iterator[Queue]:
    system = Queue(server, tmp_path)
    yield system
    server.call("delete_queue", QueueUrl=system.url)


@pytest.fixture
async def source(system) -> AsyncIterator[QueueSource]:
    source = system.open()
    yield source
    await source.close()


class TestSqs(SourceContract):
    @pytest.fixture
    def system(self, system) -> Queue:
        return system


async def look(source: QueueSource, name: str = "mail") -> SourceLook:
    [seen] = (await source.look([name])).values()
    assert isinstance(seen, SourceLook), seen
    return seen


# --- figures ------------------------------------------------------------------------------------
async def test_figures_are_those_of_the_service_and_marked_as_approximate(system, source) -> None:
    chance = random.Random(5)
    waiting = claimed = 0
    for _ in range(15):
        come = chance.randrange(1, 4)
        await system.put(come)
        take = chance.randrange(waiting + come)
        await system.take(take)
        end = chance.randrange(max(claimed + take, 1))
        await system.end(end)
        waiting, claimed = waiting + come - take, claimed + take - end
        seen = await look(source)
        assert (seen.waiting, seen.exact) == (waiting, False)
        assert seen.claimed == claimed or not claimed
        assert (seen.arrived, seen.ended, seen.oldest_seconds, seen.cap) == (None,) * 4


async def test_delayed_messages_do_not_wait(system, source) -> None:
    await system.put(2, DelaySeconds=900)
    await system.put(1)
    seen = await look(source)
    assert (seen.waiting, seen.delayed) == (1, 2)


async def test_an_empty_queue_is_believed_at_the_third_look(system, source) -> None:
    await system.put(1)
    await system.take(1)
    assert (await look(source)).claimed == 1
    await system.end(1)
    claims = [(await look(source)).claimed for _ in range(3)]
    assert claims == [1, 1, 0]


async def test_a_queue_is_named_by_its_url_too(system, source) -> None:
    await system.put(2)
    assert (await look(source, system.url)).waiting == 2


async def test_a_fifo_queue_has_no_cap_as_its_groups_are_not_known(system, source) -> None:
    system.make("orders.fifo", FifoQueue="true")
    for group in ("a", "b"):
        await system.put(1, MessageGroupId=group, MessageDeduplicationId=group)
    seen = await look(source, "orders.fifo")
    assert (seen.waiting, seen.cap) == (2, None)
    system.server.call("delete_queue", QueueUrl=system.url)
    system.make()


async def test_a_queue_that_was_made_anew_is_another_one(system, source) -> None:
    await system.put(5)
    before = await look(source)
    system.server.call("delete_queue", QueueUrl=system.url)
    [fault] = (await source.look(["mail"])).values()
    assert isinstance(fault, SourceFault)
    assert "does not exist" in fault.text
    system.make()
    after = await look(source)
    assert after.waiting == 0  # at once: nothing is known of this one
    assert before.epoch != after.epoch
    assert arrivals(before, after, None) is None


# --- credentials --------------------------------------------------------------------------------
async def test_credentials_come_from_the_environment_too(system, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    source = system.open(secret_file="")
    assert (await look(source)).waiting == 0
    await source.close()


async def test_without_credentials_there_is_a_fault_that_says_so(system, monkeypatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    source = system.open(secret_file="")
    with pytest.raises(SourceAway, match="credentials"):
        await source.look(["mail"])
    await source.close()


@pytest.mark.parametrize("secret", ["no-colon", ":only-a-key", "only-an-id:"])
def test_a_secret_of_another_form_is_refused_without_it(system, secret) -> None:
    system.secret.write_text(secret)
    with pytest.raises(ConfigError, match="expected KEY_ID:SECRET_KEY") as caught:
        system.open()
    assert secret not in str(caught.value)


async def test_an_error_never_shows_the_credentials(system, source) -> None:
    [fault] = (await source.look([f"{SECRET_KEY.replace('/', '-')}"])).values()
    assert isinstance(fault, SourceFault)
    source = system.open(url=f"http://127.0.0.1:1/{KEY_ID}")
    with pytest.raises(SourceAway) as caught:
        await source.look(["mail"])
    assert KEY_ID not in str(caught.value)
    await source.close()


# --- settings -----------------------------------------------------------------------------------
def remarks(sla_seconds: float, runtime_seconds: float = 2.0, **source: Any) -> list[str]:
    pool = {
        "source": "shop", "command": ["true"], "sla_seconds": sla_seconds,
        "runtime_seconds": runtime_seconds, "strategy": "deadline",
    }  # fmt: skip
    tree = {"sources": {"shop": {"kind": "sqs", **source}}, "pools": {"mail": pool}}
    settings = settings_of(tree)
    configured = pools(settings)
    return [*faults(settings, configured), *doubts(settings, configured)]


def test_looks_that_cost_and_promises_that_cannot_be_held_are_named() -> None:
    assert remarks(120.0) == remarks(600.0, interval_seconds=10) == []
    [costly] = remarks(120.0, interval_seconds=1)
    assert "is paid for" in costly
    [short] = remarks(15.0)
    assert "sla_seconds 15 cannot be held" in short
    [unknown] = remarks(120.0, runtime_seconds=0)
    assert "needs the rate of arrivals" in unknown


def test_a_look_is_every_ten_seconds_where_nothing_else_is_set() -> None:
    assert SourceTable(kind="sqs").look_seconds == 10.0
    assert SourceTable(kind="sqs", interval_seconds=60).look_seconds == 60.0
    assert SourceTable(kind="kafka").look_seconds == 1.0
