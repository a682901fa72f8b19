"""What a new leader starts from."""

from __future__ import annotations

from tests.unit.decider.given import NOW

from penstock.decider.core.state import PoolState, dump, restore
from penstock.events.scaling import ScalingDecisionMade, WorkersScaled


def decision(pool, placement, **fields):
    total = sum(placement.values())
    return ScalingDecisionMade(
        pool=pool,
        current=0,
        target=total,
        reasons=(),
        strategy="hybrid",
        sla_seconds=30,
        placement=placement,
        state=dump(PoolState(placement=placement, **fields)),
    )


def command(host, **pools):
    return WorkersScaled(host=host, epoch=1, version=1, pools=pools)


def test_cooldowns_come_from_the_decisions_and_workers_from_the_commands():
    found = restore(
        ["x", "y", "new"],
        {"x": decision("x", {"a": 9}, down_at=NOW - 3), "y": decision("y", {"b": 1})},
        {"a": command("a", x=2, removed=4), "b": command("b", x=3)},
        NOW,
    )
    assert found.pools == {
        "x": PoolState(placement={"a": 2, "b": 3}, down_at=NOW - 3),
        "y": PoolState(),
        "new": PoolState(),
    }
    assert found.joined == {"a", "b"}


def test_without_any_command_the_decisions_say_it_all():
    found = restore(["x"], {"x": decision("x", {"a": 9}, up_at=NOW)}, {}, NOW)
    assert found.pools["x"] == PoolState(placement={"a": 9}, up_at=NOW)


def test_a_state_of_another_version_still_says_where_the_workers_are():
    odd = decision("x", {"a": 9})
    odd = ScalingDecisionMade(
        **{**{f: getattr(odd, f) for f in odd.__struct_fields__}, "state": {"up_at": "x"}}
    )
    assert restore(["x"], {"x": odd}, {}, NOW).pools["x"].placement == {"a": 9}
