"""From `--arg NAME=VALUE` to a typed call."""

from __future__ import annotations

from datetime import date

import pytest

from penstock.cli.errors import Refused
from penstock.cli.jobs.call import make_call
from penstock.config import Settings
from penstock.jobs import BadArguments, UnknownJob, job


@job(name="cli-test.rebuild")
def rebuild(table: str, day: date | None = None, sizes: list[int] | None = None) -> None: ...


def arguments(*typed: str) -> dict[str, object]:
    call = make_call(Settings(), "cli-test.rebuild", typed)
    return call.job.decode(call.arguments)


def test_text_and_json_side_by_side() -> None:
    found = arguments("table=orders", "day=2026-11-20", "sizes=[1, 2]")
    assert found == {"table": "orders", "day": date(2026, 11, 20), "sizes": [1, 2]}


@pytest.mark.parametrize("text", ["12", "true", "null", "[1]", '{"a": 1}', "1=2", ""])
def test_what_looks_like_json_is_text_where_text_is_wanted(text) -> None:
    assert arguments(f"table={text}")["table"] == text


@pytest.mark.parametrize("typed", [[], ["table=a", "sizes=many"], ["table=a", "colour=red"]])
def test_what_does_not_fit_is_refused(typed) -> None:
    with pytest.raises(BadArguments, match=r"cli-test\.rebuild"):
        arguments(*typed)


@pytest.mark.parametrize("typed", ["table", "=orders", "a-b=c", "a.b=c"])
def test_what_is_no_argument(typed) -> None:
    with pytest.raises(Refused, match="expected NAME=VALUE"):
        arguments(typed)


def test_an_unknown_function_names_the_nearest() -> None:
    with pytest.raises(UnknownJob, match=r"did you mean 'cli-test\.rebuild'"):
        make_call(Settings(), "cli-test.rebuilt", [])
