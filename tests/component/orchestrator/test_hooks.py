"""Hooks: a job, a request or a command for each event that matches, at least once."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
import time
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.component.worker.given import QUEUE, WITHIN, Stage, settings
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing
from penstock.config import ConfigError
from penstock.config.hooks import HookTable
from penstock.config.load import check
from penstock.events.envelope import encode
from penstock.events.job import JobCancelled, JobCompleted, JobDead, JobDispatched, JobError
from penstock.events.notice import JobNotice
from penstock.health.hooks import failing_hooks
from penstock.jobs import JobNotice as ExportedNotice
from penstock.jobs import job
from penstock.orchestrator.core import hook as core
from penstock.orchestrator.hooks import runner as runners
from penstock.orchestrator.hooks.delivery import NotDelivered, Refused, delivery_of
from penstock.orchestrator.hooks.runner import HookRunner

NOTICES: list[JobNotice] = []


@job(name="hook-test.charge", queue=QUEUE)
def charge() -> None:
    raise ValueError("no money")


@job(name="hook-test.page", queue=QUEUE)
def page(notice: ExportedNotice) -> None:
    NOTICES.append(notice)
    raise RuntimeError("the pager is broken")  # its own death runs no hook


@pytest.fixture
def stage() -> Stage:
    return Stage(settings())


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    monkeypatch.setattr(runners, "_FIRST_PAUSE_SECONDS", 0.01)
    NOTICES.clear()


@asynccontextmanager
async def hooked(stage: Stage, hook: HookTable, deliver: Any = None) -> AsyncIterator[HookRunner]:
    """A hook that is followed in the block, from the first event after its beginning."""
    runner = HookRunner("pager", hook, stage.bus, stage.client, stage.subjects, deliver)
    following = asyncio.create_task(runner.follow(lambda: True))
    subject = stage.subjects.state("cursor", "hook-pager")
    await eventually(lambda: stage.bus.last(stage.subjects.state_stream, subject), WITHIN)
    try:
        yield runner
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


class Delivered:
    """Takes notices; the first ones are refused, or the process dies behind one."""

    def __init__(self, refusals: int = 0) -> None:
        self.notices: list[JobNotice] = []
        self._refusals = refusals

    async def __call__(self, notice: JobNotice) -> None:
        self.notices.append(notice)
        if len(self.notices) <= self._refusals:
            raise NotDelivered("not now")


async def dead(stage: Stage) -> str:
    async with stage.worker():
        job_id = await stage.client.dispatch(charge())
        await stage.ended(job_id)
    return job_id


async def test_a_job_is_dispatched_for_each_dead_one_and_none_for_its_own_end(stage) -> None:
    hook = HookTable(job="hook-test.page", queue=QUEUE, functions=("hook-test.*",))
    async with hooked(stage, hook), stage.worker():
        job_id = await stage.client.dispatch(charge())
        await eventually(lambda: NOTICES, WITHIN, "a notice")
        paged = core.job_id(NOTICES[0])
        await stage.ended(paged)
        await stage.ended(await stage.client.dispatch(charge()))
        await eventually(lambda: len(NOTICES) == 2, WITHIN, "the second notice")
    [notice, second] = NOTICES
    assert (notice.hook, notice.event, notice.job_id) == ("pager", "JobDead", job_id)
    assert (notice.function, notice.error_type) == ("hook-test.charge", "builtins.ValueError")
    assert notice.error == "no money"
    assert second.function == "hook-test.charge"


async def test_an_id_like_that_of_a_hooks_job_hides_no_other_jobs_end(stage) -> None:
    taker = Delivered()
    async with hooked(stage, HookTable(job="hook-test.page", queue=QUEUE), taker), stage.worker():
        await stage.ended(await stage.client.dispatch(charge(), job_id="hook_0"))
        await eventually(lambda: taker.notices, WITHIN, "a notice")
    assert [notice.job_id for notice in taker.notices] == ["hook_0"]


async def test_what_is_refused_for_now_is_tried_again(stage) -> None:
    taker = Delivered(refusals=2)
    async with hooked(stage, HookTable(command=("x",)), taker):
        job_id = await dead(stage)
        await eventually(lambda: len(taker.notices) == 3, WITHIN, "three tries")
    assert {notice.job_id for notice in taker.notices} == {job_id}
    assert len({notice.event_id for notice in taker.notices}) == 1


async def test_what_cannot_be_delivered_is_dropped_and_the_next_goes_on(stage, caplog) -> None:
    taker = Delivered(refusals=1)
    hook = HookTable(command=("x",), give_up_seconds=1e-9)
    async with hooked(stage, hook, taker):
        first, second = await dead(stage), await dead(stage)
        await eventually(lambda: len(taker.notices) == 2, WITHIN, "both")
    assert [notice.job_id for notice in taker.notices] == [first, second]
    assert f"JobDead of job {first} is dropped: not now" in caplog.text


class Picky(Delivered):
    """Takes no notice of some jobs."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.not_taken: set[str] = set()
        self.tries = 0
        self._error = error

    def refuse_with(self, error: Exception) -> None:
        self._error = error

    async def __call__(self, notice: JobNotice) -> None:
        if notice.job_id in self.not_taken:
            self.tries += 1
            raise self._error
        self.notices.append(notice)


async def test_what_is_refused_for_good_is_dropped_at_once_and_counted(stage, caplog) -> None:
    taker = Picky(Refused("status 413"))
    async with hooked(stage, HookTable(command=("x",)), taker) as runner:
        async with stage.worker():
            first = await stage.client.dispatch(charge(), job_id="first")
            taker.not_taken.add(first)
            await stage.ended(first)
        second = await dead(stage)
        await eventually(lambda: taker.notices, WITHIN, "the second")
    assert ([notice.job_id for notice in taker.notices], taker.tries) == ([second], 1)
    assert "JobDead of job first is dropped: status 413" in caplog.text
    counts = {sample.labels: sample.value for sample in runner._meters.samples()}
    assert counts == {("pager", "dropped"): 1, ("pager", "delivered"): 1}


async def test_one_that_fails_waits_beside_the_later_ones_over_a_restart(stage) -> None:
    taker = Picky(NotDelivered("not now"))
    hook = HookTable(command=("x",))
    taker.not_taken.add("first")
    async with hooked(stage, hook, taker):
        async with stage.worker():
            await stage.ended(await stage.client.dispatch(charge(), job_id="first"))
        second = await dead(stage)
        await eventually(lambda: taker.notices, WITHIN, "the second, while the first fails")
        await eventually(lambda: taker.tries > runners._TRIES_AT_HEAD, WITHIN, "tried again")
    taker.not_taken.clear()
    async with hooked(stage, hook, taker):
        await eventually(lambda: len(taker.notices) == 2, WITHIN, "the first")
        subject = stage.subjects.state("cursor", "hook-pager")

        async def is_forgotten() -> bool:
            stored = await stage.bus.last(stage.subjects.state_stream, subject)
            return stored is not None and json.loads(stored.body)["waiting"] == {}

        await eventually(is_forgotten, WITHIN, "its place is free")
    assert [notice.job_id for notice in taker.notices] == [second, "first"]


async def test_an_endpoint_that_is_away_loses_no_more_than_what_is_put_aside(
    stage, monkeypatch
) -> None:
    monkeypatch.setattr(runners, "_MOST_WAITING", 1)
    taker = Picky(NotDelivered("away"))
    taker.not_taken = {"a", "b"}
    async with hooked(stage, HookTable(command=("x",)), taker):
        async with stage.worker():
            for name in ("a", "b"):
                await stage.ended(await stage.client.dispatch(charge(), job_id=name))
        await eventually(lambda: taker.tries > 2 * runners._TRIES_AT_HEAD, WITHIN)
        taker.not_taken = {"b"}
        await eventually(lambda: taker.notices, WITHIN, "the first")
        taker.not_taken = set()
        await eventually(lambda: len(taker.notices) == 2, WITHIN, "the second")
    assert [notice.job_id for notice in taker.notices] == ["a", "b"]


async def test_an_event_that_does_not_follow_in_its_job_is_passed_over(stage, caplog) -> None:
    taker = Delivered()
    error = JobError(kind="k", message="m")
    hook = HookTable(command=("x",), on=("dead", "completed"))
    async with hooked(stage, hook, taker):
        job_id = await dead(stage)
        for event in (
            JobDead(job_id="never-was", queue=QUEUE, function="f", error=error),
            JobCompleted(job_id="never-was-2", queue=QUEUE, attempt=1, run_seconds=1.0),
            JobDead(job_id=job_id, queue=QUEUE, function="f", error=error),
        ):
            await stage.bus.append(Outgoing(stage.subjects.event(event), encode(event)))
        later = await dead(stage)
        await eventually(lambda: len(taker.notices) >= 2, WITHIN, "both that happened")
    assert [notice.job_id for notice in taker.notices] == [job_id, later]
    assert "JobDead of job never-was is passed over" in caplog.text


async def test_health_names_a_hook_whose_notices_wait_or_were_dropped(stage) -> None:
    tables = msgspec.structs.replace(settings(), hooks={"pager": HookTable(command=("x",))})
    taker = Picky(NotDelivered("cannot run x: token=5ecre7pa7h"))
    taker.not_taken.add("first")
    async with hooked(stage, HookTable(command=("x",)), taker):
        assert await failing_hooks(stage.bus, tables) == ()
        async with stage.worker():
            await stage.ended(await stage.client.dispatch(charge(), job_id="first"))
        [waiting] = await eventually(lambda: failing_hooks(stage.bus, tables), WITHIN)
        assert (waiting.name, waiting.waiting, waiting.dropped_at) == ("pager", 1, None)
        assert waiting.error == "cannot run x: token=***"
        assert abs(time.time() - (waiting.failing_since or 0.0)) < WITHIN

        taker.refuse_with(Refused("status 404"))

        async def is_dropped() -> bool:
            [hook] = await failing_hooks(stage.bus, tables)
            return hook.dropped_at is not None and not hook.waiting

        await eventually(is_dropped, WITHIN)
        await dead(stage)

        async def none_fails() -> bool:
            return await failing_hooks(stage.bus, tables) == ()

        await eventually(none_fails, WITHIN, "a later notice was delivered")


async def test_what_was_dropped_long_ago_and_what_cannot_be_read_is_not_reported(stage) -> None:
    tables = msgspec.structs.replace(settings(), hooks={"pager": HookTable(command=("x",))})
    subject = stage.subjects.state("cursor", "hook-pager")
    for body in (b'{"sequence": 1, "dropped_at": 5}', b'{"dropped_at": 1e300}', b"{"):
        await stage.bus.append(Outgoing(subject, body))
        assert await failing_hooks(stage.bus, tables) == ()


async def test_what_is_stored_of_a_failure_has_no_secret_of_the_settings(stage) -> None:
    def fail(notice: JobNotice) -> Any:
        raise Refused("curl exited with 22: -u me:abcd https://chat.test/T0/abcd token=abcd")

    hook = HookTable(command=("curl", "-u", "me:abcd"))
    async with hooked(stage, hook, fail):
        await dead(stage)
        subject = stage.subjects.state("cursor", "hook-pager")

        async def error() -> str:
            stored = await stage.bus.last(stage.subjects.state_stream, subject)
            text: str = json.loads(stored.body).get("error", "")
            return text

        text = await eventually(error, WITHIN, "a stored error")
    assert text == "curl exited with 22: -u *** https://chat.test/*** token=***"


def test_long_texts_of_an_event_are_cut() -> None:
    error = JobError(kind="k" * 500, message="m" * 10**6, traceback="t" * 10**6 + "the end")
    long = "f" * 10**6
    event = JobDead(id=long, job_id="j", queue=long, function=long, error=error)
    dispatched = JobDispatched(job_id="j", queue=long, function=long, payload=b"")
    job = core.job_before([(1, dispatched)], 2, event)
    assert job is not None
    made = core.notice("pager", HookTable(command=("x",)), event, job)
    assert made is not None
    assert len(msgspec.json.encode(made)) < 25_000
    assert made.error.startswith("mmm")
    assert "996,000 characters left out" in made.error
    assert made.traceback.endswith("the end")


async def test_function_and_queue_are_those_of_the_job_where_its_event_names_none(stage) -> None:
    hook = HookTable(command=("x",), on=("cancelled",), functions=("hook-test.*",), queues=(QUEUE,))
    taker = Delivered()
    async with hooked(stage, hook, taker):
        job_id = await stage.client.dispatch(charge(), job_id="hook_1")
        event = JobCancelled(job_id=job_id, reason="a job before it failed", cause="skipped")
        await stage.bus.append(Outgoing(stage.subjects.event(event), encode(event)))
        [notice] = await eventually(lambda: taker.notices, WITHIN)
    assert (notice.job_id, notice.function, notice.queue) == (job_id, "hook-test.charge", QUEUE)


@pytest.mark.parametrize(("function", "queue"), [("shop.charge", QUEUE), ("x", "idle")])
def test_a_job_that_a_hook_is_not_for_is_known_by_its_dispatch(function: str, queue: str) -> None:
    hook = HookTable(command=("x",), on=("cancelled",), functions=("x",), queues=(QUEUE,))
    event = JobCancelled(job_id="j", reason="r")
    dispatched = JobDispatched(job_id="j", queue=queue, function=function, payload=b"")
    assert core.may_concern(event, hook)
    job = core.job_before([(1, dispatched)], 2, event)
    assert job is not None
    assert core.notice("pager", hook, event, job) is None


async def test_killed_between_delivery_and_position_it_is_delivered_again(
    stage, monkeypatch
) -> None:
    taker = Delivered()

    async def dies(self: HookRunner) -> None:
        await asyncio.Event().wait()

    keep = HookRunner._keep
    async with hooked(stage, HookTable(command=("x",)), taker):
        monkeypatch.setattr(HookRunner, "_keep", dies)
        await dead(stage)
        await eventually(lambda: taker.notices, WITHIN, "the first delivery")
    monkeypatch.setattr(HookRunner, "_keep", keep)
    async with hooked(stage, HookTable(command=("x",)), taker):
        await eventually(lambda: len(taker.notices) == 2, WITHIN, "the second delivery")
    assert len({notice.event_id for notice in taker.notices}) == 1


async def test_a_restart_goes_on_behind_what_was_delivered(stage) -> None:
    taker = Delivered()
    async with hooked(stage, HookTable(command=("x",)), taker):
        await dead(stage)
        await eventually(lambda: taker.notices, WITHIN)
        await asyncio.sleep(0)  # its position is stored in the same step of the loop
    missed = await dead(stage)
    async with hooked(stage, HookTable(command=("x",)), taker):
        await eventually(lambda: len(taker.notices) == 2, WITHIN)
    assert taker.notices[-1].job_id == missed


async def test_events_before_its_first_start_are_not_delivered(stage) -> None:
    await dead(stage)
    taker = Delivered()
    async with hooked(stage, HookTable(command=("x",)), taker):
        later = await dead(stage)
        await eventually(lambda: taker.notices, WITHIN)
    assert [notice.job_id for notice in taker.notices] == [later]


async def test_failed_attempts_say_whether_another_follows(stage) -> None:
    taker = Delivered()
    async with hooked(stage, HookTable(command=("x",), on=("failed", "cancelled")), taker):
        await dead(stage)
        cancelled = await stage.client.dispatch(charge())
        await stage.client.cancel(cancelled, "not wanted")
        await eventually(lambda: len(taker.notices) == 2, WITHIN)
    failed, other = taker.notices
    assert (failed.event, failed.attempt, failed.will_retry) == ("JobFailed", 1, False)
    assert (other.event, other.error) == ("JobCancelled", "not wanted")


# --- ways of delivering ---------------------------------------------------------------------------
def notice() -> JobNotice:
    return JobNotice(
        hook="pager", event_id="e", event="JobDead", at="2026-01-01T00:00:00Z", job_id="j"
    )  # type: ignore[arg-type]


@contextmanager
def server(status: int) -> Iterator[tuple[str, list[tuple[dict[str, Any], str | None]]]]:
    """An HTTP server that answers with one status, and what was posted to it."""
    posted: list[tuple[dict[str, Any], str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((json.loads(body), self.headers.get("Authorization")))
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    running = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}/hook", posted
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


async def test_a_request_is_posted(stage) -> None:
    with server(204) as (url, posted):
        hook = HookTable(url=url, authorization="Bearer x")
        await delivery_of(hook, stage.client)(notice())
    [(body, authorization)] = posted
    assert (body["job_id"], body["event"], authorization) == ("j", "JobDead", "Bearer x")


@pytest.mark.parametrize("status", [500, 408, 425, 429, 302])
async def test_other_answers_are_no_delivery_and_redirects_are_not_followed(stage, status) -> None:
    with server(status) as (url, posted), pytest.raises(NotDelivered, match=f"status {status}"):
        await delivery_of(HookTable(url=url), stage.client)(notice())
    assert len(posted) == 1


@pytest.mark.parametrize("status", [400, 404, 413])
async def test_other_answers_of_four_hundred_are_final(stage, status) -> None:
    with server(status) as (url, _), pytest.raises(Refused, match=f"status {status}"):
        await delivery_of(HookTable(url=url), stage.client)(notice())


async def test_no_server_is_no_delivery(stage) -> None:
    with server(200) as (url, _):
        pass
    with pytest.raises(NotDelivered, match="cannot be reached"):
        await delivery_of(HookTable(url=url), stage.client)(notice())


def command(code: str, **fields: Any) -> HookTable:
    return HookTable(command=(sys.executable, "-S", "-c", code), **fields)


async def test_a_command_reads_the_notice(stage, tmp_path) -> None:
    code = f"import sys; open({str(tmp_path / 'read')!r}, 'w').write(sys.stdin.read())"
    await delivery_of(command(code), stage.client)(notice())
    assert json.loads((tmp_path / "read").read_text())["job_id"] == "j"


async def test_a_command_that_fails_hangs_or_is_not_there_is_no_delivery(stage) -> None:
    failing = command("import sys; print('why', file=sys.stderr); sys.exit(3)")
    with pytest.raises(NotDelivered, match="exited with 3: why"):
        await delivery_of(failing, stage.client)(notice())
    hanging = command("import signal; signal.pause()", timeout_seconds=0.2)
    with pytest.raises(NotDelivered, match="still ran after"):
        await delivery_of(hanging, stage.client)(notice())
    with pytest.raises(NotDelivered, match="cannot run no-such-program"):
        await delivery_of(HookTable(command=("no-such-program",)), stage.client)(notice())


async def test_the_end_of_a_command_that_writes_without_end_is_seen(stage) -> None:
    """Killed with more in its pipe than anybody reads: each time another part is left."""
    flooding = command("import sys\nwhile True: sys.stderr.write('x' * 9999)", timeout_seconds=0.1)
    for _ in range(5):
        with pytest.raises(NotDelivered, match="still ran after"):
            await asyncio.wait_for(delivery_of(flooding, stage.client)(notice()), 30)


async def test_a_job_that_cannot_be_is_dropped_at_once(stage, caplog) -> None:
    async with hooked(stage, HookTable(job="<locals>.page", queue=QUEUE)):
        job_id = await dead(stage)
        await eventually(lambda: "is dropped" in caplog.text, WITHIN)
    assert f"JobDead of job {job_id} is dropped" in caplog.text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "one of job, url and command; found none"),
        ({"url": "http://a", "command": ["b"]}, "found url and command"),
        ({"job": "shop.page"}, "add queue"),
        ({"url": "ftp://a"}, "http:// or https://"),
        ({"url": "http://a", "on": []}, "one or more"),
        ({"url": "http://a", "on": ["born"]}, "hooks"),
        ({"job": "shop.page", "queue": "no queue"}, "queue"),
    ],
)
def test_settings_that_cannot_be(fields, text) -> None:
    with pytest.raises(ConfigError, match=text):
        check({"hooks": {"pager": fields}})


def test_the_example_of_the_page_can_be_used() -> None:
    page = (Path(__file__).parents[3] / "docs/jobs.md").read_text("utf-8")
    section = page.partition("## Hooks")[2].partition("\n## ")[0]
    configured = check(tomllib.loads(re.search(r"```toml\n(.*?)```", section, re.DOTALL)[1]))
    assert set(configured.hooks) == {"pager", "chat", "audit"}
    fields = {field.name for field in msgspec.structs.fields(JobNotice)}
    assert {"will_retry", "error_type", "error", "traceback", "event_id"} <= fields
