"""Documents that nobody means well: each ends in an error that names the place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.declared.orders import TOML

from penstock.jobs.workflows.declared import reading
from penstock.jobs.workflows.declared.definition import MAX_BYTES, DeclaredStep, Definition
from penstock.jobs.workflows.declared.validation import BadDefinition, checked


def nested(depth: int, inside: Any) -> Any:
    for _ in range(depth):
        inside = {"not": inside}
    return inside


def document(**step: Any) -> str:
    return json.dumps({"name": "w", "steps": [{"name": "a", "function": "f", **step}]})


@pytest.mark.parametrize(
    "when",
    [
        "(" * 500 + "true == true" + ")" * 400,
        "not " * 200 + "exists(context.k)",
        "-" * 900 + "1 == context.k",
        " and ".join(["exists(context.k)"] * 60) + " or exists(context.k)" * 1,
        "9" * 900 + " == 1",
        "9**9**9**9 == context.k",
        "__import__('os').system('true')",
        "context.k.__class__ == 1",
        "context[0:1] == 1",
        "[x for x in context] == 1",
        "f'{context}' == 'a'",
        "(lambda: 1)() == 1",
        "exists(context.k, context.k)",
        "exists(path=context.k)",
        "context.k is context.k",
        "context.k := 1",
        "\x00 == 1",
        nested(9, {"exists": "context.k"}),
        {"all": [{"exists": "context.k"}] * 101},
        {"eq": [1]},
        {"eq": [1, 2], "ne": [1, 2]},
        {"exists": ["context"]},
        {"in": [1, list(range(101))]},
        {"eq": [{"ref": ["context"] * 17}, 1]},
        {},
        7,
    ],
    ids=lambda when: str(when)[:24],
)
def test_a_condition_that_is_none_names_its_step(when: Any) -> None:
    with pytest.raises(BadDefinition, match=r"step '?a'?"):
        reading.from_json(document(when=when))


def test_a_condition_nested_without_end_is_refused() -> None:
    text = '{"not":' * 20_000 + "1" + "}" * 20_000
    with pytest.raises(BadDefinition):
        reading.from_json(document(when="W").replace('"W"', text))
    with pytest.raises(BadDefinition):
        reading.from_values({"name": "w", "steps": [{"name": "a", "when": nested(5_000, {})}]})
    with pytest.raises(BadDefinition):
        reading.from_toml('name = "w"\nx = ' + "[" * 50_000)


def test_a_definition_of_ten_thousand_steps_is_refused_before_its_steps_are_looked_at() -> None:
    names = [f"s{number}" for number in range(10_000)]
    steps = tuple(
        DeclaredStep(name=name, function="f", needs=tuple(names[max(0, at - 3) : at]))
        for at, name in enumerate(names)
    )
    whole = Definition(name="w", steps=steps)
    with pytest.raises(BadDefinition, match="a definition has at most 256,000"):
        checked(whole)
    with pytest.raises(BadDefinition, match=r"1 to 1000 steps.*; found 10000$"):
        checked(whole, max_bytes=None)


def test_no_more_mistakes_are_looked_for_than_are_shown() -> None:
    steps = [
        {"name": f"s{at}", "function": "f", "needs": [f"x{at}{n}" for n in range(20)]}
        for at in range(900)
    ]
    with pytest.raises(BadDefinition) as raised:
        reading.from_values({"name": "w", "steps": steps})
    lines = str(raised.value).splitlines()
    assert len(lines) == 22 and lines[-1] == "and more"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tries = 5", 'tries = "5"', "step 'pay': Expected `int`, got `str`"),
        ("tries = 5", "tries = 5.5", "step 'pay'"),
        ("tries = 5", "tries = 2000", "step 'pay'"),
        ('needs = ["check"]\nwhen', 'needs = "check"\nwhen', "step 'pay': Expected `array`"),
        ("delay_seconds = 60.0", "delay_seconds = -1", "step 'ship'"),
        ("delay_seconds = 60.0", "delay_seconds = 2026-01-01", "step 'ship'"),
        ('rule = "all_done"', "rule = true", "step 'gathered': unknown trigger rule True"),
        ('priority = "high"', 'priority = "urgent"', "step 'reserve'"),
        ("may_fail = true", 'may_fail = "no"', "step 'reserve'"),
        ("version = 3", "version = 0", "version"),
        ('name = "orders"', "name = 3", "name"),
        ('name = "check"', 'name = ""', "step"),
        ('name = "check"', "", "missing required field `name`"),
        ("[[steps]]", "[steps]", "TOML"),
        ('sets = { paid = "result.ok" }', 'sets = { paid = "results.ok" }', "step 'pay'"),
        ('on = "context.gateway"', 'on = "gateway"', "step 'pay'"),
        ('rule = "any_failed"', "wait = true", "step 'alarm'"),
        ('rule = "any_failed"', "wait = { signals = 'x' }", "step 'alarm'.*signals"),
        ('rule = "any_failed"', "sleep_seconds = 'x'", "step 'alarm'"),
        ('rule = "any_failed"', "wait = {}", "'alarm' has function and wait; expected one"),
        ('rule = "any_failed"', "approval = { default = true }", "no timeout_seconds after which"),
        ('rule = "any_failed"', "approval = { default = 1, timeout_seconds = 1 }", "true or false"),
        ('tags = ["shop"]', 'tags = ["shop"]\nreturns = { x = "results.no" }', "what it returns"),
        ('tags = ["shop"]', 'tags = ["shop"]\nreturns = { x = "what" }', "returns: path 'what'"),
    ],
)
def test_wrong_types_name_the_step_and_the_field(old: str, new: str, message: str) -> None:
    assert old in TOML
    with pytest.raises(BadDefinition, match=message):
        reading.from_toml(TOML.replace(old, new, 1))


def test_two_steps_do_not_wait_for_one_signal() -> None:
    waits = [{"name": name, "wait": {"signal": "paid"}} for name in "ab"]
    with pytest.raises(BadDefinition, match="2 steps wait for the signal 'paid'"):
        reading.from_values({"name": "w", "steps": waits})


@given(st.binary(max_size=200))
def test_any_bytes_are_a_definition_or_an_error(document: bytes) -> None:
    for read in (reading.from_json, reading.from_toml):
        with pytest.raises(BadDefinition):
            read(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
FIELDS = st.sampled_from([*DeclaredStep.__struct_fields__])


@given(st.dictionaries(FIELDS, JSON, max_size=5), st.dictionaries(FIELDS, JSON, max_size=3))
def test_any_values_are_a_definition_or_an_error(step: dict[str, Any], other: Any) -> None:
    values = {
        "name": "w",
        "steps": [{"name": "a", **step}, {"name": "b", "function": "f", **other}],
    }
    try:
        definition = reading.from_values(values)
    except BadDefinition as error:
        assert len(str(error)) < MAX_BYTES
    else:
        assert reading.from_json(reading.to_json(definition)) == definition
