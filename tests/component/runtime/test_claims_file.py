"""Given what a worker noted of its claims, then its executor reads what it held last."""

from __future__ import annotations

from pathlib import Path

from penstock.runtime.workers import claims_file
from penstock.runtime.workers.claims_file import Claimed


def test_what_is_held_can_be_read_by_another_process_and_what_is_settled_not(
    tmp_path: Path,
) -> None:
    held = Claimed(str(tmp_path), "w")
    for number in range(3):
        held.hold(number, f"job-{number}", f"$JS.ACK.{number}")
    held.settle(1)
    held.hold(2, "job-2", "$JS.ACK.2.again")
    assert claims_file.read(tmp_path, "w") == [
        ("job-0", "$JS.ACK.0", False), ("job-2", "$JS.ACK.2.again", False)
    ]  # fmt: skip


def test_what_runs_is_marked_until_it_has_run(tmp_path: Path) -> None:
    held = Claimed(str(tmp_path), "w")
    for number in range(3):
        held.hold(number, f"job-{number}", "c")
        held.begin(number)
    held.end(0)
    held.hold(1, "job-1", "c.again")  # delivered again while it runs
    held.settle(2)
    held.hold(3, "job-3", "c")
    held.begin(7)  # not held: nothing to mark
    assert claims_file.read(tmp_path, "w") == [
        ("job-0", "c", False), ("job-1", "c.again", True), ("job-3", "c", False)
    ]  # fmt: skip


def test_a_slot_is_used_again(tmp_path: Path) -> None:
    held = Claimed(str(tmp_path), "w")
    for number in range(10_000):
        held.hold(number, f"job-{number}", "claim")
        held.settle(number)
    held.hold(1, "last", "c")
    assert claims_file.read(tmp_path, "w") == [("last", "c", False)]


def test_more_than_fit_and_what_is_too_long_are_left_to_lapse(tmp_path: Path) -> None:
    held = Claimed(str(tmp_path), "w")
    held.hold(-1, "long", "c" * 1000)
    for number in range(5000):
        held.hold(number, "j", "c")
    found = claims_file.read(tmp_path, "w")
    assert found is not None
    assert len(found) == 4096


def test_a_worker_without_an_executor_and_one_of_an_earlier_version_noted_nothing(
    tmp_path: Path,
) -> None:
    alone = Claimed("", "w")
    alone.hold(1, "j", "c")
    alone.settle(1)
    assert claims_file.read(tmp_path, "w") is None
