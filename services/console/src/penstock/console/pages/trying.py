"""Forms in which other settings of a pool are tried: on one decision, or on the past hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.console.core.computing import STRATEGIES, NothingToTry, OtherSettings, tried
from penstock.console.pages.acting.page_act import BadField, Field
from penstock.console.parts import Console
from penstock.events.envelope import utc_now

FIELDS = (
    Field(name="strategy", label="Strategy", choices=STRATEGIES),
    Field(name="policies", label="Policies", kind="names", about="With commas between them."),
    Field(name="max_workers", label="Most workers", kind="whole"),
    Field(name="min_workers", label="Fewest workers", kind="whole"),
    Field(name="sla_seconds", label="Promise, in seconds", kind="number"),
)


def entered_of(fields: Mapping[str, str]) -> dict[str, str]:
    """What stands in a form, or in a page's address, by field."""
    return {field.name: str(fields.get(field.name, "")).strip() for field in FIELDS}


def body_of(entered: Mapping[str, str]) -> dict[str, Any]:
    """A form as the API takes it. Raises BadField."""
    now = utc_now()
    values = {field.name: field.read(entered[field.name], now) for field in FIELDS}
    return {name: value for name, value in values.items() if value is not None}


def settings_of(entered: Mapping[str, str]) -> OtherSettings | None:
    """The settings of a page's address; None where there are none, or no right ones."""
    try:
        return tried(msgspec.convert(body_of(entered), OtherSettings))
    except (BadField, NothingToTry, msgspec.ValidationError):
        return None


def present(console: Console, pool: str) -> dict[str, str]:
    """What is in force now, by field; empty for a pool that is not there any more."""
    configured = console.present.pools.get(pool)
    if configured is None:
        return dict.fromkeys((field.name for field in FIELDS), "")
    profile = configured.profile
    return {
        "strategy": profile.strategy,
        "policies": ", ".join(profile.policies_in_force),
        "max_workers": str(profile.max_workers),
        "min_workers": str(profile.min_workers),
        "sla_seconds": f"{profile.sla_seconds:g}",
    }


def in_words(settings: OtherSettings) -> str:
    """``strategy hybrid, at most 60 workers``."""
    words = {
        "strategy": settings.strategy and f"strategy {settings.strategy}",
        "policies": settings.policies is not None
        and f"policies {', '.join(settings.policies) or 'none'}",
        "max_workers": settings.max_workers is not None
        and f"at most {_workers(settings.max_workers)}",
        "min_workers": settings.min_workers is not None
        and f"at least {_workers(settings.min_workers)}",
        "sla_seconds": settings.sla_seconds is not None
        and f"a promise of {settings.sla_seconds:g} s",
        "quantile": settings.quantile is not None and f"for {settings.quantile:.4g} of the jobs",
    }
    return ", ".join(word for word in words.values() if word)


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
