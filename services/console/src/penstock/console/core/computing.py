"""What the console has computed for it: settings to try, and the commands of `penstock`. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec

MOST_JOBS = 500_000
"""Of one simulation."""
_Name = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
Workers = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
Promise = Annotated[float, msgspec.Meta(gt=0, le=30 * 86_400)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
ShortId = Annotated[str, msgspec.Meta(max_length=64)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=7 * 86_400)]
SpawnSeconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]
Policies = Annotated[tuple[_Name, ...], msgspec.Meta(max_length=20)]
STRATEGIES = (
    *("deadline", "hybrid", "backlog_only", "simple_rate", "conservative", "jobs_per_worker"),
    *("queue_size", "throughput", "wait_time", "schedule", "fixed", "combined"),
)
"""Those that ship and work with jobs; others may be installed beside the decider."""


class OtherSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a pool to try; None leaves one as it was.

    Attributes:
        strategy: that computes how many workers are needed.
        policies: that may hold or limit its demand, in this order.
        min_workers: lower bound.
        max_workers: upper bound.
        sla_seconds: the promise: a job starts within this time.
        quantile: the share of jobs for which the promise holds.
    """

    strategy: _Name | None = None
    policies: Policies | None = None
    min_workers: Workers | None = None
    max_workers: Workers | None = None
    sla_seconds: Promise | None = None
    quantile: Share | None = None


class NothingToTry(ValueError):
    """No setting was given."""


def tried(given: OtherSettings) -> OtherSettings:
    """The settings alone, of an order that has further fields. Raises NothingToTry."""
    fields = {name: getattr(given, name) for name in OtherSettings.__struct_fields__}
    if all(value is None for value in fields.values()):
        raise NothingToTry(f"give at least one of {', '.join(fields)}")
    return OtherSettings(**fields)


def assignments(pool: str, other: OtherSettings) -> tuple[str, ...]:
    """The settings as `penstock` takes them: ``pools.reports.max_workers=60``."""
    return tuple(
        # Of these types and characters, JSON is TOML.
        f"pools.{pool}.{name}={msgspec.json.encode(value).decode()}"
        for name in OtherSettings.__struct_fields__
        if (value := getattr(other, name)) is not None
    )


def explain_command(
    decision_id: str, sequence: int, pool: str = "", other: OtherSettings | None = None
) -> tuple[str, ...]:
    """Recomputes a decision; with other settings, also decides the same round under them.

    Args:
        decision_id: of the decision.
        sequence: of its event.
        pool: that it is about.
        other: settings to try.
    """
    changes = assignments(pool, other) if other else ()
    options = (f"--event={sequence}", *(f"--set={change}" for change in changes))
    return ("--json", "decision", "explain", *options, "--", decision_id)


def simulate_command(
    pool: str, other: OtherSettings, since_seconds: float, spawn_seconds: float
) -> tuple[str, ...]:
    """Lets the jobs of the past arrive again.

    Args:
        pool: whose jobs.
        other: settings to try.
        since_seconds: how far back.
        spawn_seconds: that a worker takes to start.
    """
    return (
        *("--json", "replay", f"--pool={pool}", f"--since={since_seconds:.0f}s"),
        *(f"--simulate={spawn_seconds:.3f}s", f"--most-jobs={MOST_JOBS}", "--progress"),
        *(f"--set={change}" for change in assignments(pool, other)),
    )
