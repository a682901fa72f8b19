"""What of a call lists are searched by: what the settings name, and never a secret."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from penstock.config.load import ConfigError, check
from penstock.console.core.searchable_arguments import LONGEST_VALUE, MOST_ITEMS, items
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.encryption import About, KeyRing
from penstock.jobs.payloads.payload import Payload


def call(masked: tuple[str, ...] = (), handed: Any = None, **arguments: Any) -> bytes:
    return payload.encode(
        Payload(
            id="j",
            function="shop:load",
            queue="mail",
            arguments=msgspec.Raw(msgspec.msgpack.encode(arguments)),
            dispatched_at=0.0,
            masked=masked,
            handed=handed,
        )
    )


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("orders", ["orders"]),
        (7, ["7"]),
        (True, ["true"]),
        (2.5, ["2.5"]),
        (["a", "b", "a"], ["a", "b"]),
        (datetime(2026, 11, 24, tzinfo=UTC), ["2026-11-24T00:00:00+00:00"]),
        ("", []),
        (None, []),
        ({"name": "orders"}, []),
        ([["a"]], []),
        ("x" * (LONGEST_VALUE + 1), []),
        (["x" * 9_000, "a"], []),
        ("https://ada:geheim@host/", []),
        ("token=geheim", []),
        (["--password", "geheim"], []),
    ],
)
def test_plain_values_are_kept(value: Any, kept: list[str]) -> None:
    assert list(items(call(table=value), ["table"])) == [f"table={one}" for one in kept]


def test_only_what_is_named_is_kept() -> None:
    body = call(table="orders", day="monday")
    assert items(body, ["table"]) == ("table=orders",)
    assert items(body, ["shop:load:day", "other:table"]) == ("day=monday",)
    assert items(body, ["other:table"]) == ()
    assert items(body, []) == ()


@pytest.mark.parametrize("name", ["load", "jobs.shop.load"])
def test_a_function_is_named_by_the_last_part_of_its_name(name: str) -> None:
    body = payload.encode(msgspec.structs.replace(payload.decode(call(table="a")), function=name))
    assert items(body, ["load:table"]) == ("table=a",)
    assert items(body, [f"{name}:table"]) == ("table=a",)
    assert items(body, ["oad:table", "shop.load:table", "other.load:table"]) == ()


def test_what_the_job_masks_is_not_kept() -> None:
    assert items(call(masked=("Table",), table="orders"), ["table"]) == ()


def test_sealed_arguments_are_not_kept() -> None:
    ring = KeyRing({"k": os.urandom(32)})
    about = About(purpose="arguments", job="j", function="shop:load", queue="mail")
    sealed = ring.seal(msgspec.msgpack.encode("orders"), about)
    assert items(call(handed={"table": msgspec.Raw(sealed)}), ["table"]) == ()
    whole = msgspec.structs.replace(payload.decode(call()), arguments=msgspec.Raw(sealed))
    assert items(payload.encode(whole), ["table"]) == ()


def test_what_was_handed_on_is_kept() -> None:
    handed = {"table": msgspec.Raw(msgspec.msgpack.encode("orders"))}
    assert items(call(handed=handed), ["table"]) == ("table=orders",)


def test_a_job_keeps_a_few_items() -> None:
    assert len(items(call(table=[str(n) for n in range(100)]), ["table"])) == MOST_ITEMS


@pytest.mark.parametrize(
    "body", [b"", b"call", b"\xc1", payload.encode(payload.decode(call()))[:-3]]
)
def test_a_call_that_cannot_be_read_has_none(body: bytes) -> None:
    assert items(body, ["table"]) == ()


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({"console": {"searchable_arguments": ["db_password"]}}, "is masked"),
        ({"console": {"searchable_arguments": ["load:api_key"]}}, "is masked"),
        ({"console": {"searchable_arguments": ["a b"]}}, "expected the name of an argument"),
        (
            {
                "console": {"searchable_arguments": ["load:cardNumber"]},
                "encryption": {"masked": ["card_number"]},
            },
            "is in encryption.masked",
        ),
    ],
)
def test_settings_cannot_name_what_is_masked(tree: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check(tree)
