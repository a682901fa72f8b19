"""`penstock queue pause` with an end, over a broker in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.component.cli.in_memory import InMemory


@pytest.fixture
def session() -> Iterator[InMemory]:
    session = InMemory()
    yield session
    session.loop.close()


def test_a_pause_with_an_end_is_listed_with_its_reason(session: InMemory) -> None:
    end = (datetime.now(UTC) + timedelta(hours=2)).replace(microsecond=0)
    arguments = ("--until", end.isoformat(), "--reason", "month end", "--force")
    said = session.call("queue", "pause", "reports", *arguments)
    assert said.output.startswith("queue reports is paused until ")
    assert "paused until" in session.call("queue", "ls").output
    [row] = json.loads(session.call("queue", "ls", "--json").output)
    assert datetime.fromisoformat(row["paused_until"]) == end
    assert (row["paused"], row["pause_reason"]) == (True, "month end")

    session.call("queue", "resume", "reports", "--force")
    [row] = json.loads(session.call("queue", "ls", "--json").output)
    assert (row["paused"], row["paused_until"], row["pause_reason"]) == (False, None, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--for", "1h", "--until", "2030-01-01"], "expected how long once"),
        (["--until", "tomorrow"], "found 'tomorrow', expected a time"),
        (["--until", "2020-01-01T00:00Z"], "is over; a pause ends in the future"),
        (["--for", "31d"], "a pause ends within 30 days"),
    ],
)
def test_an_end_that_cannot_be_is_refused(
    session: InMemory, arguments: list[str], words: str
) -> None:
    refused = session.call("queue", "pause", "reports", "--force", *arguments)
    assert refused.exit_code != 0
    assert words in refused.output + str(refused.exception)
    assert json.loads(session.call("queue", "ls", "--json").output) == []
