"""Settings hold numbers of their declared types, wherever these come from."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from penstock.config import ConfigError, Settings, load
from penstock.config.load import check
from penstock.config.profiles import PROFILES, PoolTable, Profile
from penstock.config.topology import pools

NOWHERE = {"PENSTOCK_CONFIG": "/dev/null"}


def as_recorded(value: Any) -> Any:
    return msgspec.convert(msgspec.json.decode(msgspec.json.encode(value)), type(value))


@pytest.mark.parametrize("name", PROFILES)
def test_a_shipped_profile_is_the_same_after_a_way_through_json(name: str):
    assert repr(as_recorded(PROFILES[name])) == repr(PROFILES[name])


@pytest.mark.parametrize(
    "settings",
    [
        check({"pools": {"a": {"sla_seconds": 60}}}),
        load(environment={**NOWHERE, "PENSTOCK_POOLS__A__SLA_SECONDS": "60"}),
        load(environment=NOWHERE, flags={"pools.a.sla_seconds": 60}),
        Settings(pools={"a": PoolTable(sla_seconds=60)}),
        Settings(pools={"a": PoolTable(profile="bursty")}),
        check({"pools": {"a": {"profile": "own"}}, "profiles": {"own": {"sla_seconds": 60}}}),
    ],
)
def test_a_whole_number_becomes_a_float_at_every_border(settings: Settings):
    assert repr(pools(settings)["a"].profile.sla_seconds) == "60.0"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -0.0])
@pytest.mark.parametrize("place", ["itself", "below"])
def test_a_number_that_json_or_a_comparison_would_change_is_refused(place: str, number: float):
    tables: dict[str, Any] = {
        "itself": {"scale_up_cooldown_seconds": number},
        "below": {"options": {"deadline": {"change_seconds": number}}},
    }
    with pytest.raises(ConfigError, match=r"pools\.a"):
        check({"pools": {"a": tables[place]}})
    with pytest.raises(ValueError, match="expected a finite number"):
        Profile(**tables[place])
