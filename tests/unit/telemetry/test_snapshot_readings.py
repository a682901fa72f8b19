"""Snapshots and decisions as numbers: desired workers beyond the capacity of the hosts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.events.scaling import Reason
from penstock.events.snapshot import EndedRate, PoolSnapshot
from penstock.telemetry import metrics
from penstock.telemetry.snapshot_readings import of_pool, short_workers


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


def test_of_another_system_what_is_estimated_and_stuck_is_read_and_how_old_it_is() -> None:
    snapshot = PoolSnapshot(
        at=datetime.fromtimestamp(100.0, UTC), pool="mail", queues=("mail",), waiting=2,
        source="shop", estimated=("ended", "waiting"), stuck=3, queue_age_seconds=60.0,
        ended=EndedRate(finished_per_minute=4.0),
    )  # fmt: skip
    readings = {
        (one.metric, one.labels): one.value for one in of_pool(snapshot, 101.0, is_elsewhere=True)
    }
    assert readings[metrics.ESTIMATED, ("mail", "ended")] == 1
    assert readings[metrics.ESTIMATED, ("mail", "waiting")] == 1
    assert readings[metrics.STUCK, ("mail",)] == 3
    assert readings[metrics.MEASURED_AGE, ("mail",)] == 61.0
    assert (metrics.FAILED_SHARE, ("mail",)) not in readings, "it is not known"
    own = {one.metric for one in of_pool(snapshot, 101.0)}
    assert metrics.FAILED_SHARE in own
    assert metrics.STUCK not in own
