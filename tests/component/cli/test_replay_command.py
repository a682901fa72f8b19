"""`penstock replay` on a saved log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.decider.recorded import eventful


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return eventful().write(tmp_path / "log.jsonl")


def test_equal_is_exit_code_0(penstock, saved: Path) -> None:
    told = penstock("replay", "--from", str(saved))
    assert told.exit_code == 0
    assert "70 rounds with 80 decisions, 80 of them on the event log" in told.output
    assert "all 80 decisions, all 80 events, all 2 states" in told.output


def test_a_difference_is_shown_and_is_exit_code_1(penstock, saved: Path) -> None:
    saved.write_text(saved.read_text("utf-8").replace('"target":18', '"target":17'), "utf-8")
    told = penstock("replay", "--from", str(saved))
    assert told.exit_code == 1
    assert "target: recorded 17, recomputed 18" in told.output
    as_json = penstock("--json", "replay", "--from", str(saved))
    assert as_json.exit_code == 1
    answer = json.loads(as_json.stdout)
    assert answer["equal"] is False
    assert answer["verdict"]["differences"][0]["pool"] == "emails"


def test_other_settings_are_compared(penstock, saved: Path) -> None:
    change = ("--set", "pools.emails.max_workers=7")
    told = penstock("replay", "--from", str(saved), *change)
    assert told.exit_code == 0
    assert "10 then, 7 instead" in told.output
    assert "The queues are as they were measured" in told.output
    rows = json.loads(penstock("--json", "replay", "--from", str(saved), *change).stdout)
    assert [row["pool"] for row in rows] == ["cron", "emails"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--set", "pools.emails.sla=7"], "sla"),
        (["--set", "sla"], "expected NAME=VALUE"),
        (["--since", "1h"], "--from reads a whole file"),
    ],
)
def test_what_cannot_be_asked_is_refused(penstock, saved: Path, arguments, text: str) -> None:
    told = penstock("replay", "--from", str(saved), *arguments)
    assert told.exit_code == 2
    assert text in told.output


def test_a_file_that_is_no_log_is_said_to_be_none(penstock, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("time,count\n", "utf-8")
    told = penstock("replay", "--from", str(tmp_path / "log"))
    assert told.exit_code == 1
    assert "expected a line as '--save' writes it" in told.output
