"""What the data source may be told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.pipeline.core.options import BadOption, ReadOptions, parse, position

NEEDED = {"servers": "nats://a", "stream": "EVENTS"}


def test_text_becomes_values_and_sparks_own_options_pass() -> None:
    given = {**NEEDED, "MAX_MESSAGES": "5", "headers": "false", "checkpointLocation": "/x"}
    options = parse(ReadOptions, {**given, "subjects": "a.>, b.*"})
    assert (options.max_messages, options.headers, options.filters) == (5, False, ["a.>", "b.*"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"steam": "EVENTS"}, "unknown field `steam`"),
        ({"max_messages": "0"}, "int` >= 1"),
        ({"max_messages": "many"}, "Expected `int`"),
        ({"on_loss": "panic"}, "panic"),
        ({"start": "yesterday"}, "found 'yesterday', expected 'earliest', 'new'"),
        ({"start": "2026-01-01T00:00:00"}, "an ISO time with a zone"),
        ({"start": "0"}, "a stream sequence"),
    ],
)
def test_a_wrong_option_is_named(wrong: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        parse(ReadOptions, {**NEEDED, **wrong})


def test_a_missing_option_is_named_with_all_there_are() -> None:
    with pytest.raises(BadOption, match=r"required field `stream`; its options are servers, .*"):
        parse(ReadOptions, {"servers": "nats://a"})


def test_start_positions() -> None:
    assert position("7") == 7
    assert position("new") == "new"
    assert position("2026-01-01T00:00:00Z") == datetime(2026, 1, 1, tzinfo=UTC)
