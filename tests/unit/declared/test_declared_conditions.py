"""Conditions: read from text or data, bounded, evaluated without executing anything."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.condition import Condition, Reference
from penstock.jobs.workflows.declared.text import (
    BadCondition,
    parse_condition,
    parse_path,
    parse_result_path,
    written,
)
from penstock.jobs.workflows.declared.values import ConditionError, holds, inside

VALUES = {
    "results": {"check": {"total": 120, "tags": ["a", "b"], "ok": True}, "load all": [1, 2, 3]},
    "context": {"gateway": "stripe", "none": None, "flag": False},
}


def lookup(path: tuple[Any, ...]) -> Any:
    return inside(VALUES, path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("results.check.total > 100", True),
        ("100 < results.check.total <= 120", True),
        ("results.check.total == 120.0", True),
        ("results.check.ok == 1", False),
        ("results.check.ok", True),
        ("context.flag", False),
        ("not context.flag", True),
        ("context.gateway in ['stripe', 'paypal']", True),
        ("context.gateway not in ('stripe', 'paypal')", False),
        ("'b' in results.check.tags", True),
        ("results['load all'][2] == 3", True),
        ("results['load all'][3] == 3", False),
        ("exists(context.gateway)", True),
        ("exists(context.none)", False),
        ("exists(results.check.absent)", False),
        ("context.none == null", True),
        ("results.check.absent == null", False),
        ("results.check.absent != 3", True),
        ("results.check.absent > 3 or results.check.absent <= 3", False),
        ("context.flag and results.check.total > 'text'", False),
        ("context.gateway >= 'stripe' and true == true", True),
    ],
)
def test_what_a_condition_says(text: str, expected: bool) -> None:
    condition = parse_condition(text)
    assert holds(condition, lookup) is expected
    stored = msgspec.json.decode(msgspec.json.encode(condition), type=Condition)
    assert stored == condition
    assert parse_condition(written(condition)) == condition


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("__import__('os').system('true')", "expected comparisons"),
        ("results.check.total.__class__() == 1", "expected a path, or a constant"),
        ("environment.home == '/'", "begins with results.STEP"),
        ("results == 3", "begins with results.STEP"),
        ("results.a + 1 > 3", "expected a path, or a constant"),
        ("results.a is null", "write =="),
        ("results.a = 3", "invalid syntax"),
        ("results.a > ", "invalid syntax"),
        ("(" * 300 + ")" * 300, "nested"),
        ("results.a == " + "1" * 2_000, "1000 characters"),
        ("not " * 20 + "results.a", "deep"),
    ],
)
def test_what_is_no_condition(text: str, why: str) -> None:
    with pytest.raises(BadCondition, match=why):
        parse_condition(text)


@pytest.mark.parametrize(
    "text", ["results.check.ok > 1", "context.gateway > 3", "1 in context.flag"]
)
def test_values_without_an_order_are_an_error_that_names_no_value(text: str) -> None:
    with pytest.raises(ConditionError) as raised:
        holds(parse_condition(text), lookup)
    assert "stripe" not in str(raised.value)


def test_a_condition_as_data_has_one_operator_of_those_there_are() -> None:
    for document in (b"{}", b'{"eq": [1, 1], "ne": [1, 2]}', b'{"eval": "1"}', b'{"eq": [1]}'):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(document, type=Condition)


def test_a_deep_or_large_condition_is_refused_when_it_is_decoded() -> None:
    deep = b'{"not":' * 9 + b'{"exists":["context","a"]}' + b"}" * 9
    with pytest.raises(msgspec.ValidationError, match="8 deep"):
        msgspec.json.decode(deep, type=Condition)
    part = b'{"exists":["context","a"]}'
    with pytest.raises(msgspec.ValidationError, match="100 parts"):
        msgspec.json.decode(b'{"all":[' + b",".join([part] * 101) + b"]}", type=Condition)


def test_paths() -> None:
    assert parse_path("results.load.rows[0]") == ("results", "load", "rows", 0)
    assert parse_path('results["load all"]') == ("results", "load all")
    assert parse_result_path("result") == ()
    assert parse_result_path("result.total") == ("total",)
    for wrong in ("results", "results.a()", "input.a", "", "results.a.b-c"):
        with pytest.raises(BadCondition, match="path"):
            parse_path(wrong)
    with pytest.raises(BadCondition):
        parse_result_path("results.a")


_paths = st.lists(st.text(max_size=5) | st.integers(0, 9), max_size=3).flatmap(
    lambda rest: st.sampled_from(["results", "context"]).map(lambda root: (root, "k", *rest))
)
_operands = (
    _paths.map(Reference)
    | st.text(max_size=5)
    | st.integers(-9, 9)
    | st.booleans()
    | st.none()
    | st.lists(st.text(max_size=3) | st.integers(-9, 9), max_size=3).map(tuple)
)
_comparisons = st.builds(
    lambda name, pair: Condition(**{name: pair}),
    st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge", "within"]),
    st.tuples(_operands, _operands),
)
CONDITIONS = st.recursive(
    _comparisons | _paths.map(lambda path: Condition(exists=path)),
    lambda parts: (
        st.lists(parts, min_size=2, max_size=3).map(lambda some: Condition(all_of=tuple(some)))
        | st.lists(parts, min_size=2, max_size=3).map(lambda some: Condition(any_of=tuple(some)))
        | parts.map(lambda part: Condition(negated=part))
    ),
    max_leaves=5,
)


@pytest.mark.parametrize(
    "key",
    [
        "in",
        "None",
        "a b",
        "\N{MATHEMATICAL BOLD CAPITAL A}",
        "\N{LATIN SMALL LIGATURE FI}",
        "größe",
        "'",
        "",
        "x-y",
    ],
)
def test_a_key_that_is_no_plain_word_stands_in_brackets(key: str) -> None:
    condition = Condition(exists=("results", "step", key))
    assert parse_condition(written(condition)) == condition


@given(CONDITIONS)
def test_text_and_data_say_the_same(condition: Condition) -> None:
    assert parse_condition(written(condition)) == condition
    assert msgspec.json.decode(msgspec.json.encode(condition), type=Condition) == condition
