"""The controllers that can be simulated, by name: every strategy of the core, and the baselines."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

import msgspec

from penstock.config import Pool, Profile
from penstock.config.profiles import BY_BATCHES
from penstock.decider.core.registry import Strategies
from penstock.decider.simulator.bounds import clairvoyant, peak
from penstock.decider.simulator.model.controller import Controller, Core
from penstock.decider.simulator.model.engine import (
    HOST,
    POOL,
    Progress,
    Run,
    Simulation,
    no_progress,
)
from penstock.decider.simulator.model.load import Load
from penstock.decider.simulator.model.looks import Pace
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies import rules

STABLE_SECONDS = 300.0
_CLAIRVOYANT = "clairvoyant"


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of one simulation: one load, one promise, one seed.

    Attributes:
        profile: the promise, the bounds and the policies.
        strategies: the core's, by name.
        slots: how many jobs a worker runs at a time.
        progress: called with the share of the load that a run has behind it.
    """

    load: Load
    profile: Profile
    strategies: Strategies
    spawning: Spawning
    seed: int
    pace: Pace = Pace()
    slots: int = 1
    progress: Progress = no_progress

    def run(self, controller: Controller) -> Run:
        return Simulation(
            self.load,
            controller,
            spawning=self.spawning,
            profile=self.profile,
            seed=self.seed,
            pace=self.pace,
            slots=self.slots,
            progress=self.progress,
        ).run()


class UnknownContender(ValueError):
    """Neither a strategy nor a baseline: says the nearest name."""


def run(name: str, scene: Scene) -> Run:
    """The run of a strategy or of a baseline; see `controller`.

    Raises:
        UnknownContender.
    """
    if name != _CLAIRVOYANT:
        return scene.run(controller(name, scene))
    _check_slots(name, scene)
    return clairvoyant.best(
        scene.load,
        sla_seconds=scene.profile.sla_seconds,
        late_share=1 - scene.profile.quantile,
        spawn_seconds=scene.spawning.seconds,
        host=HOST,
        run=scene.run,
    )


def controller(name: str, scene: Scene) -> Controller:
    """A fresh controller.

    Args:
        name: a strategy's or a baseline's; some take a figure behind a colon (``deadline:1`` has
            ``calm = 1``).

    Raises:
        UnknownContender: also for the clairvoyant, which tries several.
    """
    check(name, scene.strategies)
    kind, _, figure = name.partition(":")
    if kind in scene.strategies:
        profile = _tuned(msgspec.structs.replace(scene.profile, strategy=kind), figure)
        pool = Pool(name=POOL, kind="queue", queues=(POOL,), profile=profile, slots=scene.slots)
        return Core(pool, scene.strategies, scene.load.origin)
    if kind == _CLAIRVOYANT:
        raise UnknownContender(f"{kind} tries several controllers; its run is had by 'run'")
    _check_slots(kind, scene)
    return _BASELINES[kind](scene, float(figure or _FIGURES.get(kind, 0.0)))


def _check_slots(kind: str, scene: Scene) -> None:
    if scene.slots > 1:
        raise UnknownContender(
            f"{kind} counts workers that run one job at a time, and the pool has slots = "
            f"{scene.slots}; compare strategies, or set slots = 1"
        )


def check(name: str, strategies: Strategies) -> None:
    """Raises UnknownContender."""
    kind, colon, figure = name.partition(":")
    if kind in BY_BATCHES:
        raise UnknownContender(f"{name} knows batches of streaming queries; jobs are simulated")
    if name in strategies or name == _CLAIRVOYANT or (kind in _BASELINES and not colon):
        return
    if kind not in (*_BASELINES, *_TUNABLE, _CLAIRVOYANT):
        names = [*strategies, *_BASELINES, _CLAIRVOYANT]
        near = difflib.get_close_matches(kind, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
        raise UnknownContender(f"unknown strategy {name!r}; {hint}")
    if kind not in _FIGURES and kind not in _TUNABLE:
        raise UnknownContender(f"{kind} takes no figure, found {name!r}")
    tunable = kind in _TUNABLE
    try:
        right = float(figure) > 0 or (tunable and float(figure) == 0)
    except ValueError:
        right = False
    if right and kind == "hpa" and float(figure) > 1:
        raise UnknownContender(f"found {name!r}, expected hpa:SHARE, above 0 to 1, as hpa:0.7")
    if not right:
        least = "0 or more" if tunable else "above 0"
        raise UnknownContender(f"found {name!r}, expected {kind}:NUMBER, {least}")


def _tuned(profile: Profile, figure: str) -> Profile:
    """With the strategy's one setting that a figure behind its name stands for."""
    if not figure:
        return profile
    options = dict(profile.options)
    own = options.get(profile.strategy, {})
    options[profile.strategy] = {**own, _TUNABLE[profile.strategy]: float(figure)}
    return msgspec.structs.replace(profile, options=options)


def _ruled(rule: rules.Rule, scene: Scene, stable_seconds: float = 0.0) -> Controller:
    profile = scene.profile
    return rules.Ruled(rule, HOST, profile.min_workers, profile.max_workers, stable_seconds)


def _keda(scene: Scene, figure: float) -> Controller:
    return _ruled(rules.QueueLength(figure), scene, STABLE_SECONDS)


def _hpa(scene: Scene, figure: float) -> Controller:
    return _ruled(rules.Utilisation(figure), scene, STABLE_SECONDS)


def _aws(scene: Scene, figure: float) -> Controller:
    return _ruled(rules.BacklogPerInstance(scene.profile.sla_seconds), scene, STABLE_SECONDS)


def _flink(scene: Scene, figure: float) -> Controller:
    return _ruled(rules.CatchUp(scene.profile.sla_seconds), scene)


def _horizon(scene: Scene, figure: float) -> Controller:
    profile = scene.profile
    return _ruled(rules.TimeToClear(profile.min_workers, profile.max_workers), scene)


def _spark(scene: Scene, figure: float) -> Controller:
    return _ruled(rules.Doubling(), scene)


def _peak(scene: Scene, figure: float) -> Controller:
    count = peak.fixed_peak(
        scene.load,
        sla_seconds=scene.profile.sla_seconds,
        quantile=scene.profile.quantile,
        spawn_seconds=scene.spawning.seconds,
        most=scene.profile.max_workers,
    )
    return _ruled(rules.Constant(count), scene)


_BASELINES: Mapping[str, Callable[[Scene, float], Controller]] = {
    "keda": _keda,
    "hpa": _hpa,
    "aws": _aws,
    "flink": _flink,
    "horizon": _horizon,
    "spark": _spark,
    "peak": _peak,
}
_FIGURES = {"keda": 5.0, "hpa": 0.7}
"""Baselines that take a figure, and the one they have without: messages a worker, utilisation."""

_TUNABLE = {"deadline": "calm"}
"""Strategies that take a figure, and the setting that it is."""

BASELINES = (
    "keda:1",
    "keda:2",
    "keda:5",
    "keda:10",
    "hpa:0.5",
    "hpa:0.7",
    "aws",
    "flink",
    "horizon",
    "spark",
    "peak",
    "clairvoyant",
)
"""The contenders of the leaderboard."""

BLIND = frozenset({"fixed", "schedule"}) | BY_BATCHES
"""Strategies that look at no job: compared only where they are asked for."""
