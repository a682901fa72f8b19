"""From `--arg NAME=VALUE` to a typed call."""

from __future__ import annotations

from datetime import date

import pytest
from tests.component.cli.in_memory import InMemory

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


def test_an_id_of_ones_own_is_dispatched_once() -> None:
    session = InMemory()
    submit = ("job", "submit", "cli-test.rebuild", "--arg", "table=orders", "--id", "nightly-7")
    first, second = session.call(*submit), session.call(*submit)
    assert (first.exit_code, first.output) == (0, "nightly-7\n")
    assert (second.exit_code, "was dispatched before" in second.output) == (1, True)
    assert len(session.with_client(lambda client: client.jobs.list())) == 1
    refused = session.call(*submit[:-1], "no.dots")
    assert (refused.exit_code, "'no.dots' is not allowed" in refused.output) == (2, True)
    session.loop.close()
