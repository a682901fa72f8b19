"""docs/topology.md: its example is a valid topology, and what it calls refused is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from penstock.config import ConfigError
from penstock.config.load import check
from penstock.config.profiles import PoolKind
from penstock.config.serving import serving
from penstock.config.topology import pools

PAGE = (Path(__file__).parents[3] / "docs" / "topology.md").read_text("utf-8")


def test_the_example_serves_each_queue_as_the_page_says() -> None:
    [block] = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    settings = check(tomllib.loads(block))
    made = pools(settings)
    assert {pool.kind for pool in made.values()} == {"queue", "group", "exclusive"}
    assert made["back-office"].queues == ("invoices", "exports", "cleanup")
    assert not made["ledger"].scalable
    owners = serving(settings)
    assert [owners.pool(name) for name in ("mails", "tenant-7", "legacy-x")] == [
        "mails", "others", ""
    ]  # fmt: skip


def test_every_kind_is_on_the_page() -> None:
    for kind in PoolKind.__args__:  # type: ignore[attr-defined]
        assert f"| `{kind}` |" in PAGE


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"pools": {"a": {}, "b": {"queues": ["a"]}}}, "a queue belongs to one pool"),
        ({"pools": {"a": {}}, "excluded": ["a"]}, "is also excluded"),
        (
            {"pools": {"a": {"kind": "group", "queues": ["x", "y"], "scalable": False}}},
            "a group cannot be pinned",
        ),
    ],
)
def test_what_the_page_calls_refused_is_refused(tables: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        pools(check(tables))
