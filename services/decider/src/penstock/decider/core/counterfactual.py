"""The smallest change of one input that would have changed a decision.

Each input is varied alone, outward from what was measured, by doubling steps and then by bisection
over the production core: each answer was decided, not estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.decider.core.decide import decide
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool
from penstock.decider.core.state import PoolState, State
from penstock.events.snapshot import PoolSnapshot, Quantiles

MOST_POOLS = 50
"""Rounds over more are not recomputed whole, if the pool alone comes to the same decision."""
_MOST_HOSTS = 8
_DOUBLINGS, _HALVINGS = 14, 14
_PRECISION = 0.005
_SMALLEST_STEP = 0.01
GIB = 2**30


class Setting(msgspec.Struct, frozen=True):
    """A round as it was: everything that decides."""

    state: State
    inputs: Inputs
    now: float


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one input that would have changed the decision.

    Attributes:
        input: its name.
        measured: the value it had.
        needed: the value it would need.
        target: the number of workers then.
        distance: from the one value to the other, as a share of the measured one.
        text: the same as a sentence.
    """

    input: str
    measured: float
    needed: float
    target: int
    distance: float
    text: str


class _Dial(msgspec.Struct, frozen=True):
    """An input that can be varied.

    Attributes:
        name: of the input.
        value: as it was measured.
        turn: gives the round with another value of it.
        describe: a clause about such a value.
        whole: only whole numbers make sense.
        least: the smallest value.
        follows: an answer equal to the value explains nothing (the plan simply stays), nor does one
            on the other side of the decision.
    """

    name: str
    value: float
    turn: Callable[[float], Setting]
    describe: Callable[[float], str]
    whole: bool = False
    least: float = 0.0
    follows: bool = False


def nearest(setting: Setting, pool: str) -> list[Change]:
    """For each input that could have changed the pool's number, the least change that does.

    Nearest first. Empty where no single input changes it within five orders of magnitude.
    """
    target = _target(setting, pool)
    if target is None:
        return []
    if len(setting.inputs.pools) > MOST_POOLS:
        alone = _with_inputs(setting, due=frozenset([pool]))
        setting = alone if _target(alone, pool) == target else setting
    changes = [
        change
        for dial in _dials(setting, pool)
        for sign in (-1, 1)
        if (change := _search(dial, sign, pool, target)) is not None
    ]
    return sorted(changes, key=lambda change: (change.distance, change.input))


def _search(dial: _Dial, sign: int, pool: str, target: int) -> Change | None:
    """Outward until the number changes, then back to where it begins to."""
    same, other = dial.value, None
    step = 1.0 if dial.whole else max(abs(dial.value), 1.0) * _SMALLEST_STEP
    for doubling in range(_DOUBLINGS):
        value = max(dial.value + sign * step * 2**doubling, dial.least)
        if value == same:
            return None
        # None: such a round does not decide the pool at all, which explains nothing
        if _target(dial.turn(value), pool) not in (target, None):
            other = value
            break
        same = value
    if other is None:
        return None
    other = _halve(dial, pool, target, (same, other))
    answer = _target(dial.turn(other), pool)
    assert answer is not None
    if dial.follows and (answer == other or (answer > target) != (other > dial.value)):
        return None
    return Change(
        input=dial.name,
        measured=dial.value,
        needed=other,
        target=answer,
        distance=abs(other - dial.value) / max(abs(dial.value), 1.0),
        text=f"{dial.describe(other)}, the decision would have been {_workers(answer)}",
    )


def _halve(dial: _Dial, pool: str, target: int, span: tuple[float, float]) -> float:
    same, other = span
    for _ in range(_HALVINGS):
        middle = (same + other) / 2
        if dial.whole:
            middle = float(round(middle))
        close = abs(other - same) <= _PRECISION * max(abs(dial.value), 1e-3)
        if middle in (same, other) or (close and not dial.whole):
            break
        if _target(dial.turn(middle), pool) in (target, None):
            same = middle
        else:
            other = middle
    return other


def _target(setting: Setting, pool: str) -> int | None:
    outcome = decide(setting.state, setting.inputs, setting.now)
    targets = (made.target for made in outcome.decisions if made.pool == pool)
    return next(targets, None)


# --- inputs that can be varied -------------------------------------------------------------------
def _dials(setting: Setting, pool: str) -> Iterator[_Dial]:
    measurement = setting.inputs.measured_pools.get(pool)
    if measurement is not None:
        yield from _measured(setting, measurement)
    yield _promise(setting, pool)
    yield _current(setting, pool)
    hosts = sorted(setting.inputs.measured_hosts)[:_MOST_HOSTS]
    yield from (dial for host in hosts for dial in _capacity(setting, host))


def _measured(setting: Setting, measurement: MeasuredPool) -> Iterator[_Dial]:
    snapshot = measurement.snapshot

    def turned(change: Callable[[float], PoolSnapshot]) -> Callable[[float], Setting]:
        return lambda value: _with_snapshot(setting, measurement, change(value))

    waiting, rate = snapshot.waiting, snapshot.arrival_per_second
    yield _Dial(
        "waiting",
        waiting,
        turned(lambda value: _waiting(snapshot, round(value))),
        lambda value: f"with {_difference(value - waiting)} waiting jobs ({value:.0f})",
        whole=True,
    )
    if rate is not None:
        yield _Dial(
            "arrival_per_second",
            rate,
            turned(lambda value: replace(snapshot, arrival_per_second=value)),
            lambda value: f"with {value:.3g} jobs arriving a second instead of {rate:.3g}",
        )
    if snapshot.waiting and (oldest := snapshot.oldest_waiting_seconds):
        yield _Dial(
            "oldest_waiting_seconds",
            oldest,
            turned(lambda value: _aged(snapshot, value / oldest)),
            lambda value: f"with an oldest job of {value:.3g} s instead of {oldest:.3g} s",
        )
    if (service := snapshot.service) is not None and service.mean_seconds > 0:
        mean = service.mean_seconds
        yield _Dial(
            "service_seconds",
            mean,
            turned(lambda value: replace(snapshot, service=_scaled(service, value / mean))),
            lambda value: f"with jobs of {value:.3g} s instead of {mean:.3g} s",
            least=1e-3,
        )


def _promise(setting: Setting, pool: str) -> _Dial:
    pools = setting.inputs.pools
    sla = pools[pool].profile.sla_seconds

    def turn(value: float) -> Setting:
        profile = replace(pools[pool].profile, sla_seconds=value)
        return _with_inputs(setting, pools={**pools, pool: replace(pools[pool], profile=profile)})

    return _Dial(
        "sla_seconds",
        sla,
        turn,
        lambda value: f"with a promise of {value:.3g} s instead of {sla:g} s",
        least=1e-3,
    )


def _current(setting: Setting, pool: str) -> _Dial:
    remembered = setting.state.pools.get(pool) or PoolState()
    placement = dict(remembered.placement)
    home = max(placement, key=lambda host: placement[host], default="") or min(
        setting.inputs.measured_hosts, default=""
    )

    def turn(value: float) -> Setting:
        moved = _resized(placement, home, round(value))
        pools = {**setting.state.pools, pool: replace(remembered, placement=moved)}
        return replace(setting, state=replace(setting.state, pools=pools))

    return _Dial(
        "current",
        remembered.workers,
        turn,
        lambda value: (
            f"with {_workers(value)} before this decision instead of {remembered.workers}"
        ),
        whole=True,
        follows=True,
    )


def _capacity(setting: Setting, host: str) -> Iterator[_Dial]:
    measurement = setting.inputs.measured_hosts[host]

    def turn(**fields: Any) -> Setting:
        changed = MeasuredHost(replace(measurement.snapshot, **fields), measurement.at)
        hosts = {**setting.inputs.measured_hosts, host: changed}
        return _with_inputs(setting, measured_hosts=hosts)

    memory, cores = measurement.snapshot.memory_bytes / GIB, measurement.snapshot.cpu_cores
    yield _Dial(
        f"memory of host {host}",
        memory,
        lambda value: turn(memory_bytes=round(value * GIB)),
        lambda value: "with {} GiB on host {} instead of {}".format(*_apart(value, host, memory)),
        least=0.01,
    )
    yield _Dial(
        f"cores of host {host}",
        cores,
        lambda value: turn(cpu_cores=value),
        lambda value: "with {} cores on host {} instead of {}".format(*_apart(value, host, cores)),
        least=0.01,
    )


def _with_inputs(setting: Setting, **fields: Any) -> Setting:
    return replace(setting, inputs=replace(setting.inputs, **fields))


def _with_snapshot(setting: Setting, measurement: MeasuredPool, snapshot: PoolSnapshot) -> Setting:
    changed = {
        **setting.inputs.measured_pools,
        snapshot.pool: MeasuredPool(snapshot, measurement.at),
    }
    return _with_inputs(setting, measured_pools=changed)


def _waiting(snapshot: PoolSnapshot, waiting: int) -> PoolSnapshot:
    """More of them at the end of the line; none at all has no ages."""
    if not waiting:
        none = {"waiting_ages_seconds": (), "waiting_jobs": ()}
        return replace(snapshot, waiting=0, oldest_waiting_seconds=0.0, **none)
    return replace(snapshot, waiting=waiting)


def _aged(snapshot: PoolSnapshot, factor: float) -> PoolSnapshot:
    oldest = snapshot.oldest_waiting_seconds or 0.0
    ages = tuple(age * factor for age in snapshot.waiting_ages_seconds)
    return replace(snapshot, oldest_waiting_seconds=oldest * factor, waiting_ages_seconds=ages)


def _scaled(durations: Quantiles, factor: float) -> Quantiles:
    names = [name for name in durations.__struct_fields__ if name.endswith("_seconds")]
    times = [name for name in names if name != "age_seconds"]
    return replace(durations, **{name: getattr(durations, name) * factor for name in times})


def _resized(placement: dict[str, int], home: str, workers: int) -> dict[str, int]:
    """Further workers go to ``home``; surplus ones leave the hosts with most of them first."""
    resized, extra = dict(placement), workers - sum(placement.values())
    if extra > 0 and home:
        resized[home] = resized.get(home, 0) + extra
    for host in sorted(resized, key=lambda name: -resized[name]):
        removed = min(resized[host], max(-extra, 0))
        resized[host], extra = resized[host] - removed, extra + removed
    return {host: count for host, count in resized.items() if count}


def _apart(value: float, host: str, before: float) -> tuple[str, str, str]:
    """Both numbers with just enough digits to differ, and the host between them."""
    for digits in range(3, 18):
        now, then = f"{value:.{digits}g}", f"{before:.{digits}g}"
        if now != then or value == before:
            break
    return now, host, then


def _workers(count: float) -> str:
    return "1 worker" if count == 1 else f"{count:.0f} workers"


def _difference(difference: float) -> str:
    return f"{abs(difference):.0f} {'more' if difference > 0 else 'fewer'}"
