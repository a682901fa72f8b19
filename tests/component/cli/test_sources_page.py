"""docs/sources.md: its settings are accepted, and its tables name what there is."""

from __future__ import annotations

import re
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
