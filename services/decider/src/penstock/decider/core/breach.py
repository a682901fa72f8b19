"""The promise watched: predicted to break, broken, kept again, and broken too often."""

from __future__ import annotations

import msgspec

from penstock.config.profiles import Profile
from penstock.decider.core.notices import Notice
from penstock.decider.core.pickup import Outlook
from penstock.decider.core.state import PoolState
from penstock.events.scaling import PromiseBurning, SlaBreached, SlaBreachPredicted, SlaRecovered
from penstock.events.snapshot import PoolSnapshot
from penstock.measuring.budget import PACES, pace

REPEAT_SECONDS = 30.0


def watch(
    state: PoolState, snapshot: PoolSnapshot, profile: Profile, outlook: Outlook, now: float
) -> tuple[PoolState, list[Notice]]:
    """The state and notices for a fresh snapshot, and the outlook with the planned workers."""
    state, predicted = _predict(state, snapshot, profile, outlook, now)
    state, broken = _breach(state, snapshot, profile, now)
    state, burning = _burn(state, snapshot)
    return state, predicted + broken + burning


def _predict(
    state: PoolState, snapshot: PoolSnapshot, profile: Profile, outlook: Outlook, now: float
) -> tuple[PoolState, list[Notice]]:
    """Once when it begins, and again at most every 30 s while it lasts."""
    worst = outlook.worst_seconds
    if worst is None or worst <= profile.sla_seconds:
        if state.predicted_at is None:
            return state, []
        return msgspec.structs.replace(state, predicted_at=None), []
    if state.predicted_at is not None and now - state.predicted_at < REPEAT_SECONDS:
        return state, []
    notice = Notice(
        event=SlaBreachPredicted,
        fields={
            "pool": snapshot.pool,
            "predicted_pickup_seconds": worst,
            "sla_seconds": profile.sla_seconds,
            "waiting": snapshot.waiting,
        },
    )
    return msgspec.structs.replace(state, predicted_at=now), [notice]


def _breach(
    state: PoolState, snapshot: PoolSnapshot, profile: Profile, now: float
) -> tuple[PoolState, list[Notice]]:
    oldest = snapshot.oldest_waiting_seconds if snapshot.waiting else 0.0
    if oldest is None:  # an unknown age is no proof of a change
        return state, []
    late = oldest > profile.sla_seconds
    if late == (state.breached_at is not None):
        return state, []
    fields = {"pool": snapshot.pool, "sla_seconds": profile.sla_seconds}
    if state.breached_at is None:
        notice = Notice(event=SlaBreached, fields={**fields, "oldest_waiting_seconds": oldest})
        return msgspec.structs.replace(state, breached_at=now), [notice]
    lasted = max(now - state.breached_at, 0.0)
    notice = Notice(event=SlaRecovered, fields={**fields, "breached_seconds": lasted})
    return msgspec.structs.replace(state, breached_at=None), [notice]


def _burn(state: PoolState, snapshot: PoolSnapshot) -> tuple[PoolState, list[Notice]]:
    """Reported when it begins and each time it gets worse, until the budget burns no longer."""
    if snapshot.budget is None:
        return state, []
    worst_pace = pace(snapshot.budget)
    if worst_pace and PACES.index(worst_pace) <= PACES.index(state.burning):
        return state, []
    state = msgspec.structs.replace(state, burning=worst_pace)
    fields = {"pool": snapshot.pool, "pace": worst_pace, "budget": snapshot.budget}
    return state, [Notice(event=PromiseBurning, fields=fields)] if worst_pace else []
