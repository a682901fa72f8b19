"""Whatever a system answers: no kind of source crashes, stalls, or shows what it must not."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.component.metrics.sources.hostile_servers import (
    KINDS,
    SECRET,
    command_table,
    serving,
)

from penstock.config.load import check
from penstock.config.sources import SourceTable
from penstock.config.topology import pools
from penstock.events.envelope import encode
from penstock.metrics.core.sources.look import MOST_MESSAGES
from penstock.metrics.core.sources.meter import SourceMeter
from penstock.metrics.looker import SourceLooker
from penstock.telemetry.lines import one_line

for library in ("aio_pika", "aiobotocore", "aiokafka", "psycopg", "redis"):
    pytest.importorskip(library)

FIGURES = [
    b"-1", b"NaN", b"-Infinity", b"1e999", b"9" * 40, b"9" * 5_000, b"0x1F", b"null", b"true",
    b'""', b'"3"', b"\xff\xfe\x80", b"\0", b'"\\u0000\\u202e\\u001b[2J"', b'"\xed\xa0\x80"',
    b'"\\ud800"', "\u202e\u2066\x1b[2J\x07\x85".encode(), b"[" * 50_000, b'{"a":' * 5_000,
    f"password=hunter2 {SECRET}".encode(), f'"password=hunter2 {SECRET}"'.encode(),
    b"x" * 280 + SECRET.encode(), b'"' + b"x" * 280 + SECRET.encode() + b'"', b"-infinity",
    b"10000-01-01 00:00:00+00", b"1" * 100_000,
]  # fmt: skip


@pytest.fixture
def secret(tmp_path) -> Path:
    file = tmp_path / "secret"
    file.write_text(f"KEYID:{SECRET}")
    file.chmod(0o600)
    return file


def meter_of() -> SourceMeter:
    pool = {"source": "shop", "command": ["true"], "kind": "group", "queues": ["mail"]}
    tree = {"sources": {"shop": {"kind": "simulated"}}, "pools": {"mails": pool}}
    [pool] = pools(check(tree)).values()
    return SourceMeter(pool, 60.0, 1.0)


async def shown_after(table: SourceTable) -> str:
    """What is wrong after a look, which left figures that can be and text that may be shown."""
    meter = meter_of()
    looker = SourceLooker("shop", table, [meter])
    try:
        async with asyncio.timeout(60):
            await looker.look()
    finally:
        await looker.close()
    now = time.monotonic()
    meter.observe(now)
    snapshot = meter.snapshot(now, datetime.now(UTC), {"id": "1", "source": "t"}, "tick")
    fault = meter.source_queues[0].fault
    if snapshot is not None:
        assert 0 <= snapshot.waiting <= MOST_MESSAGES
        assert encode(snapshot)
    assert snapshot is not None or fault
    assert one_line(fault) == fault
    assert len(fault) <= 300
    assert "hunter2" not in fault
    assert SECRET[:8] not in fault
    fault.encode()
    return fault


@pytest.mark.parametrize(
    "kind",
    # Each look at SQS makes a client, which takes half a second.
    [pytest.param(kind, marks=[pytest.mark.long] * (kind == "sqs")) for kind in KINDS],
)
async def test_no_figure_of_a_server_breaks_a_look(kind: str, secret: Path) -> None:
    hostile = KINDS[kind]
    for figure in FIGURES:
        async with serving(hostile.answer(figure)) as port:
            table = hostile.table(port, secret)
            await shown_after(table)


async def test_no_figure_of_a_program_breaks_a_look(secret: Path) -> None:
    for figure in FIGURES:
        for name in (b"waiting", b"error"):
            await shown_after(command_table(b'{"mail": {"%s": %s}}' % (name, figure), secret))


async def test_a_program_that_fails_shows_no_part_of_its_secret(secret: Path) -> None:
    assert "exited with 1" in await shown_after(command_table(b"", secret))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_without_end_is_given_up_before_its_time(kind: str, secret: Path) -> None:
    hostile = KINDS[kind]
    async with serving(hostile.begun(hostile.begin), hostile.begin, hostile.again) as port:
        fault = await shown_after(hostile.table(port, secret))
    assert fault
    assert "no answer within" not in fault


async def test_no_kind_follows_a_redirect(secret: Path) -> None:
    asked: list[bytes] = []

    def answer(received: bytes) -> bytes:
        asked.append(received)
        return b"HTTP/1.1 307 X\r\nContent-Length: 0\r\nLocation: /elsewhere\r\n\r\n"

    async with serving(answer) as port:
        for kind in ("http", "prometheus", "management", "sqs"):
            assert "307" in await shown_after(KINDS[kind].table(port, secret))
    assert len(asked) == 4
    assert not any(b"/elsewhere" in request for request in asked)
