"""Ends of messages by the names of those in work."""

from __future__ import annotations

from penstock.metrics.sources.claim_ids import ClaimIds


def test_those_that_are_no_longer_in_work_ended() -> None:
    claims = ClaimIds()
    assert [claims.ended("a", ids) for ids in ([b"1", b"2"], [b"2", b"3"], [])] == [0, 1, 3]


def test_queues_that_are_no_longer_looked_at_are_forgotten() -> None:
    claims = ClaimIds()
    for queue in ("a", "b"):
        claims.ended(queue, [b"1"])
        claims.ended(queue, [])
    claims.keep(["a", "c"])
    assert claims.ended("a", []) == 1
    assert claims.ended("b", []) == 0
