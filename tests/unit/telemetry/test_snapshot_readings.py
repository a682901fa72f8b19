"""Snapshots and decisions as numbers: desired workers beyond the capacity of the hosts."""

from __future__ import annotations

import pytest

from penstock.events.scaling import Reason
from penstock.telemetry.snapshot_readings import short_workers


@pytest.mark.parametrize(
    ("steps", "short"),
    [
        ([("strategy", 12), ("capacity", 9)], 3),
        ([("strategy", 12), ("bounds", 10), ("capacity", 9), ("fair-share", 4)], 6),
        ([("strategy", 12), ("bounds", 5), ("policy", 4)], 0),
        ([("strategy", 2), ("bounds", 5)], 0),
        ([("strategy", 3)], 0),
    ],
)
def test_only_what_hosts_have_no_room_for_is_short(
    steps: list[tuple[str, int]], short: int
) -> None:
    reasons = [Reason(step=step, rule="r", workers=workers, text=".") for step, workers in steps]
    assert short_workers(reasons) == short
