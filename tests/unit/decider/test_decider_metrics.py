"""The decider's own metrics: desired workers beyond the capacity of the hosts."""

from __future__ import annotations

import pytest

from penstock.decider.core.conclude import Decision
from penstock.decider.core.state import PoolState
from penstock.decider.own_metrics import short_workers
from penstock.events.scaling import Reason


def decided(*steps: tuple[str, int]) -> Decision:
    reasons = tuple(Reason(step=step, rule="r", workers=n, text=".") for step, n in steps)
    return Decision(
        pool="mails",
        current=1,
        target=steps[-1][1],
        reasons=reasons,
        strategy="deadline",
        sla_seconds=10,
        predicted_pickup_seconds=None,
        snapshot_ids=(),
        placement={},
        state=PoolState(),
    )


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
    assert short_workers(decided(*steps)) == short
