"""Kinds `http` and `prometheus`, against servers that a test controls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.component.endless_answers import MODES, endless_answers
from tests.component.metrics.sources.pages import Pages

from penstock.config.sources import SourceTable
from penstock.metrics.sources import QueueSource, SourceAway, SourceFault, SourceLook
from penstock.metrics.sources.registry import open_source
from penstock.testing.sources import SourceContract

DEPTHS = {"waiting": "queues.{queue}.depth", "claimed": "queues.{queue}.busy"}


class CountedPages:
    """Depth and claims of a queue, behind an HTTP server."""

    queue, absent = "mail", "gone"
    counts_claims, knows_age = True, False

    def __init__(self) -> None:
        self.depth = self.busy = 0
        self.pages = Pages(self.answer)
        self.pages.start()

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        queues = {"mail": {"depth": self.depth, "busy": self.busy}}
        return 200, {}, json.dumps({"queues": queues}).encode()

    def open(self) -> QueueSource:
        table = SourceTable(kind="http", url=f"{self.pages.url}/stats", options=DEPTHS)
        return open_source("shop", table)

    async def put(self, count: int) -> None:
        self.depth += count

    async def take(self, count: int) -> None:
        self.depth, self.busy = self.depth - count, self.busy + count

    async def end(self, count: int) -> None:
        self.busy -= count

    async def stop(self) -> None:
        self.pages.stop()

    async def start(self) -> None:
        self.pages.start()

    async def connections(self) -> int:
        return len(self.pages.open)


class MeasuredPages(CountedPages):
    """The same as Prometheus gives it."""

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        [query] = parse_qs(urlsplit(target).query)["query"]
        name, _, queue = query.partition(":")
        figures = {"waiting": self.depth, "claimed": self.busy}
        samples = [{"value": [1.5, str(figures[name])]}] if queue == self.queue else []
        data = {"resultType": "vector", "result": samples}
        return 200, {}, json.dumps({"status": "success", "data": data}).encode()

    def open(self) -> QueueSource:
        options = {"waiting": "waiting:{queue}", "claimed": "claimed:{queue}"}
        table = SourceTable(kind="prometheus", url=self.pages.url, options=options)
        return open_source("shop", table)


class TestHttp(SourceContract):
    @pytest.fixture
    def system(self) -> Iterator[CountedPages]:
        system = CountedPages()
        yield system
        system.pages.stop()


class TestPrometheus(SourceContract):
    @pytest.fixture
    def system(self) -> Iterator[MeasuredPages]:
        system = MeasuredPages()
        yield system
        system.pages.stop()


@pytest.fixture
def pages() -> Iterator[Pages]:
    pages = Pages(lambda _: (200, {}, b"{}"))
    pages.start()
    yield pages
    pages.stop()


def source_of(pages: Pages, path: str = "", **more: Any) -> QueueSource:
    given = {"kind": "http", "options": {"waiting": "depth"}, **more}
    return open_source("shop", SourceTable(url=pages.url + path, **given))


@pytest.mark.parametrize(
    ("status", "headers", "body", "text"),
    [
        (302, {"Location": "http://127.0.0.1:1/"}, b"", "status 302, which is not followed"),
        (401, {}, b"", "status 401: check the user and secret_file"),
        (200, {}, b"<html>", "expected JSON"),
        (200, {}, b"[" * 100_000, "expected JSON"),
        (200, {}, b"1" * 5_000_000, "more than 4000000 bytes"),
        (200, {}, b"[%b0]" % (b"{}," * 200_001), "more than 200000 lists and tables"),
    ],
    ids=["redirect", "refused", "page", "deep", "large", "lists"],
)
async def test_an_answer_that_is_none_is_an_error(pages, status, headers, body, text) -> None:
    pages.answer = lambda _: (status, headers, body)
    source = source_of(pages)
    with pytest.raises(SourceAway) as caught:
        await source.look(["mail"])
    assert text in str(caught.value)
    assert len(pages.requests) == 1
    await source.close()


@pytest.mark.parametrize("kind", ["http", "prometheus"])
@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_without_end_ends_by_the_timeout(kind: str, mode: str) -> None:
    options = {"waiting": "depth"}
    with endless_answers(mode) as server:
        table = SourceTable(kind=kind, url=server.url, options=options, timeout_seconds=0.3)
        source = open_source("shop", table)
        with pytest.raises(SourceAway, match=r"not end|no whole answer within 0\.3 s"):
            async with asyncio.timeout(15):
                await source.look(["mail"])
        assert await asyncio.to_thread(server.client_left.wait, 15)
        await source.close()


@pytest.mark.parametrize(
    ("document", "path", "look"),
    [
        ({"depth": 3}, "depth", SourceLook(waiting=3)),
        ({"queues": [{"n": 4}]}, "queues.0.n", SourceLook(waiting=4)),
        ({"a.b": {"n": 5}}, "{queue}.n", SourceLook(waiting=5)),
        ({"n": "6"}, "n", SourceLook(waiting=6)),
        ({"n": None}, "n", SourceFault("found no figure 'waiting'")),
        ({"n": True}, "n", SourceFault("found no number of waiting: bool")),
        ({"m": 1}, "n", SourceFault("found nothing at 'n'")),
        ([1], "1", SourceFault("found nothing at '1'")),
    ],
)
async def test_a_path_leads_to_a_figure_or_to_a_fault(pages, document, path, look) -> None:
    pages.answer = lambda _: (200, {}, json.dumps(document).encode())
    source = source_of(pages, options={"waiting": path})
    assert await source.look(["a.b"]) == {"a.b": look}
    await source.close()


async def test_a_queue_in_the_address_is_asked_for_with_the_secret(pages, tmp_path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("Bearer s3cret")
    secret.chmod(0o600)
    pages.answer = lambda target: (200, {}, b'{"depth": %d}' % len(target))
    source = source_of(pages, "/q/{queue}?all=1", secret_file=str(secret))
    looks = await source.look(["a/b", "c"])
    assert looks == {"a/b": SourceLook(waiting=14), "c": SourceLook(waiting=10)}
    assert pages.requests == [("/q/a%2Fb?all=1", "Bearer s3cret"), ("/q/c?all=1", "Bearer s3cret")]
    assert "s3cret" not in repr(vars(source))
    await source.close()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"resultType": "vector", "result": []}, "gave 0 series"),
        ({"resultType": "vector", "result": [{"value": [1, "2"]}] * 2}, "gave 2 series"),
        ({"resultType": "vector", "result": [{"value": [1, "NaN"]}]}, "gave NaN"),
        ({"resultType": "scalar", "result": [1, "many"]}, "gave no number"),
    ],
)
async def test_a_query_without_one_number_is_a_fault(pages, data, text) -> None:
    pages.answer = lambda _: (200, {}, json.dumps({"data": data}).encode())
    source = source_of(pages, kind="prometheus", options={"waiting": "up"})
    [look] = (await source.look(["mail"])).values()
    assert isinstance(look, SourceFault)
    assert text in look.text
    await source.close()


async def test_a_queues_name_cannot_leave_its_quotes(pages) -> None:
    source = source_of(pages, kind="prometheus", options={"waiting": 'n{q="{queue}"}'})
    with pytest.raises(SourceAway):
        await source.look(['a"} or vector(1) #'])
    [(target, _)] = pages.requests
    assert parse_qs(urlsplit(target).query)["query"] == ['n{q="a\\"} or vector(1) #"}']
    await source.close()
