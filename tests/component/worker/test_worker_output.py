"""What jobs write: each line names its job, and is stored for `penstock job logs`."""

# ruff: noqa: T201 - what jobs print is what is tested

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import copy_context
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from msgspec.structs import replace
from tests.component.worker.given import QUEUE, WITHIN, Stage, settings

from penstock.bus.protocol import BusUnavailable, Outgoing
from penstock.config import Settings
from penstock.jobs import Client, Context, job
from penstock.jobs.errors import NotFound
from penstock.jobs.payloads import redaction
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.reading.job_logs import AttemptLines
from penstock.telemetry.lines import JsonLines, PlainLines
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.app import without_executor
from penstock.worker.loop import Worker
from penstock.worker.output import stored_lines
from penstock.worker.parts import assemble

LOGGER = logging.getLogger("shop.parts")
OUTSIDE = logging.getLogger("elsewhere")


@job(name="output-test.talk", queue=QUEUE)
def talk(context: Context, word: str) -> None:
    print("printed", word)
    LOGGER.info("logged %s", word)
    context.logger.warning("by its own logger")
    print("no line break", end="", file=sys.stderr)


@job(name="output-test.flood", queue=QUEUE)
def flood(lines: int) -> None:
    for number in range(lines):
        print("x" * 200, number)
    raise ValueError("too much")


@job(name="output-test.fail", queue=QUEUE, tries=2, backoff=(0.01,))
def fail() -> None:
    print("before")
    raise ValueError("one\ntwo")


@job(name="output-test.fail-silently", queue=QUEUE, tries=2, backoff=(0.01,))
def fail_silently() -> None:
    raise ValueError("no line before")


@job(name="output-test.login", queue=QUEUE)
def login(user: str, password: str) -> None:
    print(f"{user} comes with {password}, or token=abc123")


PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN/g+kq=\nLINE-TWO\n-----END PRIVATE KEY-----\n"
QUOTED = 'it\'s\\n "open" sésame'
LONG = "T0KEN" * 20


@job(name="output-test.spell", queue=QUEUE)
def spell(private_key: str, password: str, token: str) -> None:
    print(private_key)
    for line in private_key.splitlines():
        print("line", quote_plus(line))
    for written in (repr(password), json.dumps(password), quote(password), password.encode()):
        print("as", written)
    for start in range(7_900, 8_100, 20):
        print("x" * start + token)
    raise ValueError(token + "y" * (15_950 - len(token)))


@job(name="output-test.whisper", queue=QUEUE, encrypted=True)
def whisper(word: str) -> None:
    print("whispered", word)


@job(name="output-test.threads", queue=QUEUE)
def threads(context: Context) -> None:
    for target in (
        lambda: LOGGER.info("of nobody"),
        lambda: context.logger.info("by the context"),
    ):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    thread = threading.Thread(target=copy_context().run, args=(LOGGER.info, "in a copied context"))
    thread.start()
    thread.join()


@job(name="output-test.waiting", queue=QUEUE)
async def waiting(word: str) -> None:
    await asyncio.sleep(0)
    LOGGER.info("awaited %s", word)


@job(name="output-test.resets", queue=QUEUE)
def resets() -> None:
    for handler in list(logging.root.handlers):
        logging.root.removeHandler(handler)


class _Console(logging.Handler):
    """Formats each line as a service's standard error would show it."""

    def __init__(self) -> None:
        super().__init__()
        self.plain: list[str] = []
        self.json: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.plain.append(PlainLines().format(record))
        self.json.append(json.loads(JsonLines().format(record)))


@pytest.fixture
def console():
    handlers, level = list(logging.root.handlers), logging.root.level
    console = _Console()
    logging.root.addHandler(console)
    logging.root.setLevel("INFO")
    yield console
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@asynccontextmanager
async def worker(
    configured: Settings | None = None, bus: MemoryBus | None = None
) -> AsyncIterator[Stage]:
    """A worker that is its process's only one, as far as output goes."""
    stage = Stage(configured or settings(), bus)
    parts = assemble(stage.bus.client(), without_executor(stage.settings, QUEUE))
    async with parts.output.opened():
        running = asyncio.create_task(Worker(parts).run())
        try:
            yield stage
        finally:
            parts.state.stop("the test is over")
            await asyncio.wait_for(running, WITHIN)


def texts(parts: list[AttemptLines]) -> list[str]:
    return [line.text for part in parts for line in part.lines]


async def written(stage: Stage, job_id: str) -> list[AttemptLines]:
    """What a job wrote; all of it once its worker has ended."""
    return await stage.client.jobs.logs(job_id)


async def test_each_line_names_job_attempt_function_and_worker(console) -> None:
    async with worker() as stage:
        job_id = await stage.client.dispatch(talk(word="hello"))
        await stage.ended(job_id)
    of_job = [line for line in console.json if line.get("job_id") == job_id]
    assert [line["text"] for line in of_job] == [
        "printed hello",
        "logged hello",
        "by its own logger",
        "no line break",
    ]
    assert {(line["attempt"], line["function"]) for line in of_job} == {(1, "output-test.talk")}
    assert {line.get("stream") for line in of_job} == {"stdout", "stderr", None}
    assert all(str(line["worker"]).startswith(QUEUE) for line in of_job)
    named = f"[job {job_id} attempt 1 function output-test.talk worker {QUEUE}-"
    assert sum(named in line for line in console.plain) == 4


async def test_lines_outside_of_jobs_name_none(console, capsys) -> None:
    async with worker() as stage:
        await stage.ended(await stage.client.dispatch(talk(word="hello")))
        OUTSIDE.info("between jobs")
        print("printed by the platform")
    [line] = [line for line in console.json if line["logger"] == "elsewhere"]
    assert "job_id" not in line
    assert capsys.readouterr().out == "printed by the platform\n"


async def test_lines_are_stored_attempt_by_attempt_with_the_failure(console) -> None:
    async with worker() as stage:
        job_id = await stage.client.dispatch(fail())
        await asyncio.wait_for(_retried(stage, job_id), WITHIN)
    parts = await written(stage, job_id)
    assert {part.attempt for part in parts} == {1, 2}
    assert [text for text in texts(parts) if text == "before"] == ["before"] * 2
    failures = [line for part in parts for line in part.lines if line.error_type]
    assert [line.error_type for line in failures] == ["builtins.ValueError"] * 2
    assert all('raise ValueError("one' in line.traceback for line in failures)
    shown = [line for line in console.plain if " failed (Job" in line]
    assert ["Traceback" in line for line in shown] == [False, True]  # the first one is retried
    assert all(any(part.ended for part in parts if part.attempt == n) for n in (1, 2))


async def test_an_attempt_that_wrote_nothing_but_its_failure_has_ended(console) -> None:
    """The line about the failure comes after the function's end, and is the first that is
    stored."""
    async with worker() as stage:
        job_id = await stage.client.dispatch(fail_silently())
        await asyncio.wait_for(_retried(stage, job_id), WITHIN)
    parts = await written(stage, job_id)
    assert [(part.attempt, part.ended) for part in parts] == [(1, True), (2, True)]


async def _retried(stage: Stage, job_id: str) -> None:
    """Fires the retry of a job until it has ended."""
    while not (await stage.client.job(job_id)).state.ended:
        stage.bus.tick()
        await asyncio.sleep(0.01)


async def test_what_a_job_writes_is_bounded_and_the_rest_counted(console) -> None:
    configured = settings()
    bounded = replace(configured, logs=replace(configured.logs, max_attempt_bytes=10_000))
    async with worker(bounded) as stage:
        job_id = await stage.client.dispatch(flood(lines=100))
        await stage.ended(job_id)
    parts = await written(stage, job_id)
    printed = [text for text in texts(parts) if text.startswith("x")]
    assert 0 < len(printed) < 40
    assert sum(part.dropped for part in parts) == 100 - len(printed)
    assert any(line.error_type for part in parts for line in part.lines)


async def test_a_message_stored_twice_is_read_once_and_a_forged_one_hides_none(console) -> None:
    async with worker() as stage:
        job_id = await stage.client.dispatch(login(user="ada", password="open sesame"))
        await stage.ended(job_id)
    [*_, true] = await written(stage, job_id)
    log_stream, subject = stage.bus.subjects.logs_stream, stage.bus.subjects.log_lines(job_id)
    messages = await stage.bus.history(log_stream, subject)
    await stage.bus.remove(log_stream, subject)
    for body in (
        *(re.sub(rb'"text":"[^"]*"', b'"text":"forged"', one.body) for one in messages),
        *(one.body for one in messages for _ in range(2)),
    ):
        await stage.bus.append(Outgoing(subject, body))
    assert texts(await written(stage, job_id)) == ["forged", *texts([true])]


async def test_masked_arguments_are_not_stored(console) -> None:
    async with worker() as stage:
        job_id = await stage.client.dispatch(login(user="ada", password="open sesame"))
        await stage.ended(job_id)
    [text] = texts(await written(stage, job_id))
    assert text == "ada comes with ***, or token=***"


async def test_masked_arguments_are_found_however_they_are_written(console) -> None:
    async with worker() as stage:
        job_id = await stage.client.dispatch(spell(private_key=PEM, password=QUOTED, token=LONG))
        await stage.ended(job_id)
    lines = [line for part in await written(stage, job_id) for line in part.lines]
    stored = "\n".join(line.text + line.traceback for line in lines)
    for piece in ("BEGIN", "MIIE", "LINE-TWO", "sesame", "sésame", "open", "T0K", "KEN"):
        assert piece not in stored
    shown = [line.text for line in lines if line.text.startswith("as ")]
    assert shown == ["as '***'", 'as "***"', "as ***", "as b'***'"]
    cut = [line.text for line in lines if line.text.startswith("xx")]
    assert all(len(text) < 8_100 for text in cut)
    assert any("yyy" in line.traceback for line in lines)


@pytest.mark.parametrize("size", [7_999, 8_001, 20_000, 80_000])
def test_a_secret_across_a_bound_is_not_stored_in_part(size: int) -> None:
    secret = "S3CRET-" * 3_000

    def shown(text: str) -> str:
        return text.replace(secret, "***")

    for text in ("x" * size + secret + "z" * size, secret * 3 + "z" * size):
        assert "S3" not in stored_lines._beginning(text, shown, len(secret))
        assert "S3" not in stored_lines._end(text, shown, len(secret))


def test_looking_for_secrets_is_bounded() -> None:
    arguments = {"password": "\n".join(f"line {n} +/é" for n in range(50_000)), "token": "hunter2"}
    call = Payload(
        id="a",
        function="f",
        queue=QUEUE,
        dispatched_at=1.0,
        arguments=msgspec.Raw(msgspec.msgpack.encode(arguments)),
    )
    hidden = redaction.hidden_texts(call)
    assert len(hidden) == 1_000
    assert {"hunter2", arguments["password"]} <= set(hidden)


async def test_lines_of_an_encrypted_job_are_encrypted(console, tmp_path) -> None:
    key_file = tmp_path / "keys"
    key_file.write_text(f"one {base64.b64encode(b'k' * 32).decode()}\n")
    key_file.chmod(0o600)
    configured = settings()
    encrypting = replace(
        configured, encryption=replace(configured.encryption, key_file=str(key_file))
    )
    async with worker(encrypting) as stage:
        knows = Client.over(stage.bus, encrypting)
        job_id = await knows.dispatch(whisper(word="hello"))
        await stage.ended(job_id)
    stored = stage.bus.stored(stage.subjects.logs_stream, ">")
    assert stored
    assert not any(b"whispered" in message.body for message in stored)
    assert texts(await knows.jobs.logs(job_id)) == ["whispered hello"]
    [part] = await written(stage, job_id)  # by a client without the key
    assert "encrypted" in part.unreadable


async def test_threads_of_a_job_name_it_by_context(console) -> None:
    async with worker() as stage:
        job_id = await stage.client.dispatch(threads())
        await stage.ended(job_id)
    assert texts(await written(stage, job_id)) == ["by the context", "in a copied context"]
    assert "of nobody" in [line["text"] for line in console.json]


async def test_lines_of_async_jobs_name_it(console) -> None:
    async with worker() as stage:
        job_id = await stage.client.dispatch(waiting(word="x"))
        await stage.ended(job_id)
    assert texts(await written(stage, job_id)) == ["awaited x"]


async def test_a_module_that_replaces_all_handlers_stops_it_for_one_job_only(console) -> None:
    async with worker() as stage:
        await stage.ended(await stage.client.dispatch(resets()))
        job_id = await stage.client.dispatch(talk(word="hello"))
        await stage.ended(job_id)
    assert "printed hello" in texts(await written(stage, job_id))


async def test_nothing_is_stored_where_it_is_off(console) -> None:
    configured = settings()
    off = replace(configured, logs=replace(configured.logs, enabled=False))
    async with worker(off) as stage:
        job_id = await stage.client.dispatch(talk(word="hello"))
        await stage.ended(job_id)
    assert any(line.get("job_id") == job_id for line in console.json)
    with pytest.raises(NotFound, match=r"logs\.enabled is off"):
        await written(stage, job_id)


async def test_a_broker_that_stores_no_lines_neither_slows_nor_fails_a_job(
    console, monkeypatch
) -> None:
    async with worker() as stage:
        append_many = MemoryBus.append_many

        async def refuse(self: MemoryBus, messages):
            if any(".logs." in message.subject for message in messages):
                raise BusUnavailable("away")
            return await append_many(self, messages)

        monkeypatch.setattr(MemoryBus, "append_many", refuse)
        job_id = await stage.client.dispatch(talk(word="hello"))
        assert (await stage.ended(job_id)).attempts == 1
        monkeypatch.undo()
    assert "printed hello" in texts(await written(stage, job_id))


async def test_lines_are_followed_until_the_job_has_ended(console) -> None:
    async with worker() as stage:
        job_id = await stage.client.dispatch(talk(word="hello"))
        async with asyncio.timeout(WITHIN):
            followed = [part async for part in stage.client.jobs.follow_logs(job_id)]
    assert "printed hello" in texts(followed)
    assert followed[-1].ended
