"""Definitions: read from TOML, JSON and Python values, checked, told apart by their digest."""

from __future__ import annotations

import tomllib
from typing import Any

import msgspec
import pytest
from tests.unit.declared.orders import TOML

from penstock.events.graph import Join, Rule
from penstock.jobs import Backoff
from penstock.jobs.workflows.declared import reading
from penstock.jobs.workflows.declared.definition import (
    MAX_BYTES,
    DeclaredStep,
    Definition,
    digest,
)
from penstock.jobs.workflows.declared.planning import plan
from penstock.jobs.workflows.declared.validation import BadDefinition, checked


def definition(*steps: dict[str, Any], **fields: Any) -> Definition:
    named = [{"name": name, **step} for name, step in zip("abcdefgh", steps, strict=False)]
    return reading.from_values({"name": "w", "steps": named, **fields})


def job(**fields: Any) -> dict[str, Any]:
    return {"function": "shop.work", **fields}


def test_toml_json_and_python_values_give_the_same_definition() -> None:
    orders = reading.from_toml(TOML)
    assert reading.from_values(tomllib.loads(TOML)) == orders
    assert reading.from_json(reading.to_json(orders)) == orders
    assert reading.from_toml(TOML.encode()) == orders
    pay = orders.steps[1]
    assert pay.branch is not None and list(pay.branch.cases) == ["stripe", "paypal"]
    assert orders.steps[4].backoff == Backoff(first_seconds=2.0)
    assert orders.keys == {"gateway", "paid", "order"}


def test_a_condition_may_be_text_or_data() -> None:
    data = {"gt": [{"ref": "results.a.n"}, 3]}
    one, other = (
        definition(job(), job(needs=["a"], when=when)) for when in ("results.a.n > 3", data)
    )
    assert one == other


def test_the_digest_tells_definitions_apart() -> None:
    orders = reading.from_toml(TOML)
    assert digest(reading.from_json(reading.to_json(orders))) == digest(orders)
    for changed in (
        msgspec.structs.replace(orders, version=4),
        msgspec.structs.replace(orders, steps=orders.steps[::-1]),
        reading.from_toml(TOML.replace("results.check.total > 0", "results.check.total > 1")),
    ):
        assert digest(changed) != digest(orders)


@pytest.mark.parametrize(
    ("steps", "fields", "message"),
    [
        ([], {}, "1 to 1000 steps"),
        ([job()] * 2 + [job(name="b")], {}, "2 steps have the name 'b'"),
        ([job(), job(needs=["aa"])], {}, "'b' needs 'aa', which is no step; did you mean 'a'?"),
        (
            [job(needs=["c"]), job(needs=["a"]), job(needs=["b"])],
            {},
            "steps need each other: (a → c → b → a|b → a → c → b|c → b → a → c)",
        ),
        ([job(), job(needs=["a"], rule="any_succes")], {}, "'any_succes'.*any_success"),
        ([job(), job(needs=["a"], rule=["x"])], {}, "unknown trigger rule"),
        ([job(), job(needs=["a"], rule="one_failed")], {}, "did you mean 'any_failed'"),
        ([job(rule="any_failed")], {}, "'a' can never run"),
        ([job(), job(needs=["a"], rule="any_failed")], {"on_failure": "stop"}, "set on_failure"),
        ([job(), job(when="results.a.n > 3")], {}, "add it to needs"),
        ([job(), job(takes={"n": "results.z"}, needs=["a"])], {}, "'z' is no step"),
        ([job(when="context.absent")], {"context": {"k": 1}}, "expected a key of the context: k"),
        ([job(sets={"absent": "result"})], {}, "'absent', which is no key of the context"),
        ([job(when="import os")], {}, "step 'a'.*condition"),
        ([job(retries=3)], {}, "step 'a'.*unknown field `retries`"),
        ([job(tries=-1)], {}, "step 'a'.*>= 0"),
        ([job(timeout_seconds=float("inf"))], {}, "step 'a'"),
        ([job(delay_seconds=float("nan"))], {}, "step 'a'"),
        ([job(delay_seconds=367 * 86_400)], {}, "more than a year"),
        ([job(queue="no spaces")], {}, "queue"),
        ([job(tags=[str(n) for n in range(11)])], {}, "at most 10 tags"),
        (
            [job(arguments={"n": 1}, takes={"n": "context.n"})],
            {"context": {"n": 1}},
            "'n' of shop.work twice",
        ),
        ([job(arguments={"n": float("nan")})], {}, "JSON cannot hold"),
        ([job(arguments={"n": b"bytes"})], {}, "JSON cannot hold"),
        (
            [job(branch={"on": "context.n", "cases": {}})],
            {"context": {"n": 1}},
            "has function and branch; expected one",
        ),
        ([{}], {}, "nothing would run"),
        ([job(), {"needs": ["a"], "tries": 3}], {}, "is a join.*tries"),
        ([job()], {"context": {"n": 1}, "required": ["n"]}, "required, and has a value"),
        ([job(needs=["a"])], {}, "steps need each other: a → a"),
        ([job(arguments={"x": "y" * MAX_BYTES})], {}, "bytes"),
        (
            [job(compensate={"function": "f", "takes": {"x": "results.b"}}), job()],
            {},
            "add it to needs",
        ),
    ],
)
def test_what_is_refused(steps: list[Any], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadDefinition, match=message):
        definition(*steps, **fields)


@pytest.mark.parametrize("document", ["", "[]", "{", "3", "nul", '{"name": 3}', "[" * 100_000])
def test_what_is_no_definition_at_all(document: str) -> None:
    with pytest.raises(BadDefinition):
        reading.from_json(document)
    with pytest.raises(BadDefinition):
        reading.from_toml(document)


def test_a_document_is_measured_before_it_is_read() -> None:
    for read in (reading.from_json, reading.from_toml):
        with pytest.raises(BadDefinition, match="at most 256,000 bytes"):
            read("[" * (MAX_BYTES + 1))


def test_all_problems_are_listed_at_once() -> None:
    with pytest.raises(BadDefinition) as raised:
        definition(job(needs=["x"]), job(rule="any_success"), job(delay_seconds=1e8))
    assert len(str(raised.value).splitlines()) == 4


def test_values_made_in_python_are_checked_alike() -> None:
    with pytest.raises(BadDefinition, match="no step"):
        checked(Definition(name="w", steps=(DeclaredStep(name="a", function="f", needs=("b",)),)))


def test_what_is_started_of_a_definition() -> None:
    planned = plan(reading.from_toml(TOML))
    steps = {step.step.name: step.step for step in planned}
    assert list(steps) == [
        "check", "pay/stripe", "pay/paypal", "pay/otherwise", "reserve",
        "pay", "gathered", "alarm", "ship", "undo pay",
    ]  # fmt: skip
    assert steps["pay"].needs == (1, 2, 3)
    assert (steps["pay"].join, steps["pay"].rule) == (Join.BRANCH, Rule.ANY_SUCCESS)
    assert (steps["gathered"].join, steps["gathered"].needs) == (Join.ALL, (5, 4))
    assert steps["ship"].reads == {"payment": ("results", 5, "id")}
    assert steps["undo pay"].compensates == 5
    assert steps["pay/stripe"].sets == {"paid": ("ok",)}
    assert [step.call.function for step in planned if step.call is not None] == [
        "shop.check", "shop.pay_stripe", "shop.pay_paypal", "shop.pay_by_invoice", "shop.reserve",
        "shop.alarm", "shop.ship", "shop.refund",
    ]  # fmt: skip
