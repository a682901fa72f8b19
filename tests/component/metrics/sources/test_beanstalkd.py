"""Kind `beanstalkd`, against a real server and the client library greenstalk."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.beanstalkd_server import BeanstalkdServer, beanstalkd_server

from penstock.config.load import ConfigError
from penstock.config.sources import SourceTable
from penstock.metrics.core.sources.arrivals import arrivals
from penstock.metrics.sources import QueueSource, SourceAway, SourceFault, SourceLook
from penstock.metrics.sources.registry import open_source
from penstock.testing.sources import SourceContract

greenstalk = pytest.importorskip("greenstalk")


class Tube:
    """A tube; producer and consumer are one client, so that the server counts no more of ours."""

    queue, absent = "mail", None
    counts_claims, knows_age = True, True

    def __init__(self, server: BeanstalkdServer) -> None:
        self.server = server
        self.client = self.connect()
        self.taken: list[greenstalk.Job] = []

    def connect(self) -> greenstalk.Client:
        return greenstalk.Client(("127.0.0.1", self.server.port), use="mail", watch="mail")

    def open(self) -> QueueSource:
        return open_source("shop", SourceTable(kind="beanstalkd", url=self.server.url))

    async def put(self, count: int) -> None:
        for _ in range(count):
            self.client.put("body")

    async def take(self, count: int) -> None:
        self.taken += [self.client.reserve(timeout=0) for _ in range(count)]

    async def end(self, count: int) -> None:
        for _ in range(count):
            self.client.delete(self.taken.pop())

    async def stop(self) -> None:
        self.server.kill()
        self.client.close()

    async def start(self) -> None:
        self.server.start()
        self.client = self.connect()

    async def connections(self) -> int:
        return self.client.stats()["current-connections"] - 1


@pytest.fixture
def system(tmp_path) -> Iterator[Tube]:
    with beanstalkd_server(tmp_path) as server:
        yield Tube(server)


@pytest.fixture
async def source(system) -> AsyncIterator[QueueSource]:
    source = system.open()
    yield source
    await source.close()


class TestBeanstalkd(SourceContract):
    @pytest.fixture
    def system(self, system) -> Tube:
        return system


async def look(source: QueueSource, name: str = "mail") -> SourceLook:
    [seen] = (await source.look([name])).values()
    assert isinstance(seen, SourceLook), seen
    return seen


# --- against an oracle --------------------------------------------------------------------------
async def test_all_counts_are_exact_and_the_age_is_right_within_a_second(system, source) -> None:
    chance = random.Random(11)
    line: deque[float] = deque()
    put = ended = 0
    start = time.monotonic()
    while time.monotonic() - start < 3.0:
        come = chance.randrange(4)
        await system.put(come)
        line += [time.monotonic()] * come
        take = min(chance.randrange(2), len(line))
        await system.take(take)
        for _ in range(take):
            line.popleft()
        end = min(chance.randrange(3), len(system.taken))
        await system.end(end)
        put, ended = put + come, ended + end
        seen = await look(source)
        assert (seen.waiting, seen.claimed) == (len(line), len(system.taken))
        assert (seen.arrived, seen.ended, seen.exact) == (put, ended, True)
        age = time.monotonic() - line[0] if line else 0.0
        assert seen.oldest_seconds == pytest.approx(age, abs=1.0)
    assert line  # it grew: there was an age to be right about
    assert time.monotonic() - line[0] > 1.0


# --- what is not ready --------------------------------------------------------------------------
async def test_delayed_and_buried_jobs_do_not_wait(system, source) -> None:
    system.client.put("later", delay=3600)
    await system.put(2)
    system.client.bury(system.client.reserve(timeout=0))
    seen = await look(source)
    assert (seen.waiting, seen.claimed, seen.delayed, seen.arrived) == (1, 0, 1, 3)


async def test_jobs_of_a_paused_tube_are_delayed(system, source) -> None:
    await system.put(3)
    system.client.pause_tube("mail", 3600)
    seen = await look(source)
    assert (seen.waiting, seen.delayed, seen.oldest_seconds) == (0, 3, 0.0)
    system.client.pause_tube("mail", 0)
    assert (await look(source)).waiting == 3


async def test_the_age_of_a_job_that_was_delayed_is_that_since_it_was_due(system, source) -> None:
    system.client.put("soon", delay=1)
    async with asyncio.timeout(10):
        while not (seen := await look(source)).waiting:  # noqa: ASYNC110 - the server signals nothing
            await asyncio.sleep(0.01)
    assert seen.oldest_seconds == pytest.approx(0.0, abs=1.0)


async def test_the_age_of_a_job_that_was_released_is_unknown_not_wrong(system, source) -> None:
    await system.put(1)
    system.client.release(system.client.reserve(timeout=0))
    seen = await look(source)
    assert (seen.waiting, seen.oldest_seconds) == (1, None)


# --- tubes that come and go ---------------------------------------------------------------------
async def test_a_tube_that_is_not_there_is_empty_and_is_not_made(system, source) -> None:
    seen = await look(source, "nobodys")
    assert (seen.waiting, seen.claimed, seen.delayed, seen.oldest_seconds) == (0, 0, 0, 0.0)
    await system.put(1)
    await look(source)
    assert system.client.tubes() == ["default", "mail"]


async def test_a_tube_that_became_empty_is_not_kept_by_looking(system, source) -> None:
    await system.put(1)
    await look(source)
    await system.take(1)
    await system.end(1)
    system.client.use("default")
    system.client.watch("default")
    system.client.ignore("mail")
    assert system.client.tubes() == ["default"]
    assert (await look(source)).waiting == 0


async def test_a_tube_that_was_made_anew_counts_anew(system, source) -> None:
    await system.put(5)
    await system.take(5)
    await system.end(5)
    before = await look(source)
    system.client.close()  # the server drops the tube
    gone = await look(source)
    assert arrivals(before, gone, None) is None
    system.client = system.connect()
    await system.put(7)
    again = await look(source)
    moved = arrivals(gone, again, None)
    assert moved is not None
    assert (moved.came, moved.exact) == (7, True)


async def test_a_server_that_was_started_again_counts_anew(system, source) -> None:
    await system.put(5)
    before = await look(source)
    await system.stop()
    for _ in range(2):
        with pytest.raises(SourceAway, match=r"closed the connection|cannot be reached"):
            await source.look(["mail"])
    await system.start()
    await system.put(9)
    after = await look(source)
    assert after.waiting == 9
    assert before.epoch != after.epoch
    assert arrivals(before, after, None) is None


# --- what is refused ----------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["two words", "mail\r\nput 0 0 1 1", "-mail", "x" * 201, "tübe"])
async def test_a_name_that_no_tube_can_have_is_a_fault_of_it_alone(system, source, name) -> None:
    await system.put(1)
    looks = await source.look([name, "mail"])
    assert isinstance(looks[name], SourceFault)
    assert isinstance(looks["mail"], SourceLook)
    assert system.client.tubes() == ["default", "mail"]


async def test_large_jobs_are_not_read_for_their_age(tmp_path) -> None:
    with beanstalkd_server(tmp_path, "-z", "2000000") as server:
        system = Tube(server)
        system.client.put("x" * 1_500_000)
        source = system.open()
        seen = await look(source)
        assert (seen.waiting, seen.oldest_seconds) == (1, None)
        await source.close()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "expected OK"),
        (b"OK 99999999999\r\n", "expected 65536 at most"),
        (b"OK nonsense\r\n", "expected 65536 at most"),
        (b"OK 4\r\nid:1\r\nNOT_FOUND\r\n", r"max_job_size|max-job-size"),
        (b"OK 100\r\nid: 1", "closed the connection"),
        (b"x" * 100_000, "no line of this protocol"),
    ],
)
async def test_another_server_is_named_as_one(answer, text) -> None:
    async def answering(reader, writer) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(answering, "127.0.0.1", 0)
    url = f"beanstalkd://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    source = open_source("shop", SourceTable(kind="beanstalkd", url=url))
    async with server:
        with pytest.raises(SourceAway, match=text):
            await source.look(["mail"])
        await source.close()


def test_a_secret_is_refused_as_the_server_takes_none(tmp_path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o600)
    table = SourceTable(kind="beanstalkd", url="beanstalkd://cache", secret_file=str(secret))
    with pytest.raises(ConfigError, match="remove secret_file"):
        open_source("shop", table)
