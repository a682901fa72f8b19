"""docs/sources.md: its settings are accepted, and its tables name what there is."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from penstock.cli.config_remarks import judge
from penstock.config.load import check
from penstock.config.topology import pools
from penstock.metrics.core.sources.look import SourceLook
from penstock.metrics.sources.registry import BUILTIN

PAGE = (Path(__file__).parents[3] / "docs" / "sources.md").read_text("utf-8")
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n", 1)[0])
def test_the_settings_of_the_page_are_accepted(block) -> None:
    settings = check(tomllib.loads(block))
    remarks = judge(settings, pools(settings), no_import=True)
    assert [remark.text for remark in remarks if remark.level == "error"] == []


def test_the_page_lists_each_kind_and_each_figure() -> None:
    first_cells = set(re.findall(r"^\| `([\w-]+)` \|", PAGE, re.M))
    assert first_cells >= BUILTIN.keys()
    figures = {field.name for field in msgspec.structs.fields(SourceLook)}
    assert figures <= set(re.findall(r"`(\w+)`", PAGE))


def test_a_check_names_looks_that_cost_and_promises_that_are_too_short() -> None:
    pool = {"source": "orders", "command": ["true"], "sla_seconds": 15, "runtime_seconds": 1}
    source = {"kind": "sqs", "interval_seconds": 1}
    settings = check({"sources": {"orders": source}, "pools": {"orders": pool}})
    remarks = judge(settings, pools(settings), no_import=True)
    coarse = [(one.level, one.text) for one in remarks if one.rule == "coarse-source"]
    assert [level for level, _ in coarse] == ["warning", "warning"]
    assert [text.partition(":")[0] for _, text in coarse] == ["sources.orders", "pools.orders"]


def test_a_check_names_what_a_source_lacks_on_this_machine(tmp_path) -> None:
    secret, command = tmp_path / "secret", ["/nowhere/depths"]
    source = {"kind": "command", "command": command, "secret_file": str(secret)}
    settings = check({"sources": {"spool": source}})

    def warnings() -> dict[str, str]:
        found = judge(settings, {}, no_import=True)
        return {one.rule: one.text for one in found if one.text.startswith("sources.spool")}

    assert warnings().keys() == {"unreadable-secret", "unknown-command"}
    assert "'/nowhere/depths' cannot be run on this machine" in warnings()["unknown-command"]
    assert f"{secret} cannot be read" in warnings()["unreadable-secret"]
    secret.write_text("s3cret")
    secret.chmod(0o600)
    assert warnings().keys() == {"unknown-command"}


@pytest.mark.parametrize(
    ("kind", "url", "options", "library", "extra"),
    [
        ("celery", "redis://cache/0", {}, "redis", "redis"),
        ("sql", "postgresql://db/shop", {"query": "select 1 as waiting"}, "psycopg", "sql"),
        ("rabbitmq", "amqp://rabbit", {}, "aio_pika", "rabbitmq"),
    ],
)
def test_a_check_names_a_library_that_is_missing(
    monkeypatch, kind, url, options, library, extra
) -> None:
    settings = check({"sources": {"shop": {"kind": kind, "url": url, "options": options}}})

    def warnings() -> list[str]:
        remarks = judge(settings, {}, no_import=True)
        return [remark.text for remark in remarks if remark.rule == "missing-library"]

    assert warnings() == []
    for module in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    [text] = warnings()
    assert text.startswith("sources.shop")
    assert f"run: pip install 'penstock-metrics[{extra}]', where the metrics" in text
