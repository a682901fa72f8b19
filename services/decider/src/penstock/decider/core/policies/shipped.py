"""The policies by name: those that ship. The shell adds those of installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from penstock.config import ConfigError, Pool
from penstock.config.explain import hint
from penstock.decider.core import options
from penstock.decider.core.policies.break_even import BREAK_EVEN
from penstock.decider.core.policies.budget import BUDGET_CAP
from penstock.decider.core.policies.cooldown import COOLDOWN
from penstock.decider.core.policies.downward import (
    AGGRESSIVE,
    CONSERVATIVE,
    KEEP_BUSY,
    NO_SCALE_DOWN,
)
from penstock.decider.core.policies.effectiveness import EFFECTIVENESS
from penstock.decider.core.policies.flaps import FLAP_BUDGET
from penstock.decider.core.policies.lasting_breach import BREACH_NOTIFICATION
from penstock.decider.core.policies.policy import Policies
from penstock.decider.core.policies.quiet_hours import QUIET_HOURS

SHIPPED: Policies = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            COOLDOWN,
            CONSERVATIVE,
            AGGRESSIVE,
            NO_SCALE_DOWN,
            KEEP_BUSY,
            FLAP_BUDGET,
            BREAK_EVEN,
            EFFECTIVENESS,
            BREACH_NOTIFICATION,
            BUDGET_CAP,
            QUIET_HOURS,
        )
    }
)


def check(pools: Mapping[str, Pool], policies: Policies) -> None:
    """Every pool's policies exist and take the pool's options.

    Raises:
        ConfigError: names the pool, what was found, and what was expected.
    """
    for pool in pools.values():
        profile, above = pool.profile, ("pools", pool.name, "policy_options")
        for name in profile.policies_in_force:
            if name not in policies:
                raise ConfigError(
                    f"pools.{pool.name}.policies: unknown policy {name!r}; {hint(name, policies)}"
                )
            if profile.policies_in_force.count(name) > 1:
                raise ConfigError(f"pools.{pool.name}.policies: {name!r} is named twice")
        options.check_tables(
            "policy", policies, profile.policy_options, profile.policies_in_force, above
        )
