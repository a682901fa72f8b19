"""What a host may claim to be."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.decider.intake import wrong
from penstock.events.envelope import MalformedEvent
from penstock.events.snapshot import SNAPSHOTS, HostSnapshot
from penstock.measuring.hosts import implausible

SUBJECT = "p.snapshots.host.h"


def host(**fields: Any) -> HostSnapshot:
    return HostSnapshot(**{"host": "h", "cpu_cores": 4.0, "memory_bytes": 2**33, **fields})


@pytest.mark.parametrize(
    "fields",
    [{"memory_bytes": 2**63 - 1}, {"memory_bytes": 2**49}, {"cpu_cores": float("inf")},
     {"cpu_cores": float("nan")}],
    ids=["all bits", "too much", "infinite", "no number"],
)  # fmt: skip
def test_no_number_is_beyond_judging(fields: dict[str, Any]) -> None:
    assert next(iter(fields)) in implausible(host(**fields))


def test_an_integer_of_400_digits_is_no_snapshot() -> None:
    """It ended metrics and every decider, and again at each start."""
    raw = b'{"type":"HostSnapshot","host":"h","cpu_cores":1,"memory_bytes":1%s}' % (b"0" * 400)
    with pytest.raises(MalformedEvent):
        SNAPSHOTS.decode(raw)


def test_what_counts_below_zero_is_wrong() -> None:
    assert wrong(host(), SUBJECT) is None
    assert wrong(host(own_memory_bytes=-1), SUBJECT) == (
        "found own_memory_bytes = -1, expected 0 or more"
    )
    assert wrong(host(max_workers=-1), SUBJECT) is not None
