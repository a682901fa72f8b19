"""Traces x promises x spawn times x seeds x strategies: everything run, and summed up in rows."""

from __future__ import annotations

import itertools
import multiprocessing
import multiprocessing.pool
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from ctypes import Array, c_double
from multiprocessing.pool import IMapIterator
from multiprocessing.sharedctypes import RawArray

import msgspec
import numpy as np

from penstock.config import Profile
from penstock.decider.core.registry import Strategies
from penstock.decider.simulator.bounds.bound import bound_worker_seconds
from penstock.decider.simulator.model.durations import Durations
from penstock.decider.simulator.model.engine import Progress, Run, no_progress
from penstock.decider.simulator.model.load import Load, Trace, draw
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies import contenders
from penstock.decider.simulator.studies.contenders import Scene
from penstock.runtime.children import end_with

_REPORT_SECONDS = 0.2


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a study.

    Attributes:
        names: strategies and baselines.
        profile: bounds and policies; its promise is replaced.
        service: how the run times were asked for, as text.
        durations: the same, ready to draw.
        seeds: how many, from 0.
        slots: how many jobs a worker runs at a time.
    """

    traces: Sequence[Trace]
    names: Sequence[str]
    slas: Sequence[float]
    quantile: float
    spawns: Sequence[Spawning]
    service: str
    durations: Durations
    thin: Sequence[float]
    seeds: int
    profile: Profile
    strategies: Strategies
    slots: int = 1


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One seed of one strategy.

    Attributes:
        jobs: how many there were.
        late_share: of the jobs, later than promised; 0 to 1.
        wait_p50: seconds from arrival to start, of which half of the jobs waited less.
        wait_p95: the same of 95 % of the jobs.
        wait_p99: the same of 99 % of the jobs.
        wait_max: the longest wait.
        worker_seconds: of all workers, starting and draining included.
        actions: changes of the number of workers.
        reversals: changes in the other direction than the one before.
        unstarted: jobs that no worker took within an hour of the trace's end.
        bound_worker_seconds: the least that keeps this promise, with everything known beforehand.
    """

    jobs: float
    late_share: float
    wait_p50: float
    wait_p95: float
    wait_p99: float
    wait_max: float
    worker_seconds: float
    actions: float
    reversals: float
    unstarted: float
    bound_worker_seconds: float = 0.0


class SimulationResult(Figures, frozen=True, kw_only=True):
    """Means over the seeds (of ``wait_max`` and ``unstarted`` the highest), and what they are of.

    Attributes:
        trace: name of the arrivals.
        strategy: that decided, or a baseline.
        sla_seconds: the promise: a job starts within so many seconds.
        quantile: the share of the jobs for which that is promised.
        spawn_seconds: how long a worker takes to start.
        service: how run times were asked for.
        thin: share of the arrivals that was kept.
        hours: how long the arrivals last.
        seeds: how many runs these are the means of.
        late_share_worst: the highest ``late_share`` of a run.
    """

    trace: str
    strategy: str
    sla_seconds: float
    quantile: float
    spawn_seconds: float
    service: str
    thin: float
    hours: float
    seeds: int
    late_share_worst: float

    @property
    def keeps_promise(self) -> bool:
        """Whether no more jobs were late than the promise allows, as a mean over the seeds."""
        return self.late_share <= 1 - self.quantile + 1e-9

    @property
    def cost_ratio(self) -> float:
        """Worker-seconds as a multiple of the least that is possible; 0 where that is not known."""
        bound = self.bound_worker_seconds
        return self.worker_seconds / bound if bound else 0.0

    @property
    def actions_per_hour(self) -> float:
        """Changes of the number of workers, an hour of the arrivals; 0 where they last no time."""
        return self.actions / self.hours if self.hours else 0.0


class Case(msgspec.Struct, frozen=True):
    """One thing to compute; ``name`` is empty for the bound."""

    trace: int
    sla: float
    spawn: int
    seed: int
    name: str


def run(
    study: Study, processes: int = 1, progress: Progress = no_progress, nice: int = 0
) -> Iterator[SimulationResult]:
    """Rows in the order of the question, each as soon as it is known.

    Args:
        study: the question.
        processes: that simulate at a time.
        progress: called with the share that is done, again and again.
        nice: by how much several processes yield the processor to others, 0 to 19.
    """
    settings = list(
        itertools.product(range(len(study.traces)), study.slas, range(len(study.spawns)))
    )
    cases = [
        Case(trace, sla, spawn, seed, name)
        for trace, sla, spawn in settings
        for name in ("", *study.names)
        for seed in range(study.seeds)
    ]
    answers = _answers(study, cases, processes, progress, nice)
    for trace, sla, spawn in settings:
        bounds = [next(answers) for _ in range(study.seeds)]
        for name in study.names:
            runs = [next(answers) for _ in range(study.seeds)]
            yield _row(study, Case(trace, sla, spawn, 0, name), runs, bounds)


def with_known_bounds(rows: Sequence[SimulationResult]) -> list[SimulationResult]:
    """The rows, without the bound where a run that keeps the promise costs less than it.

    The bound counts a worker for whole steps, of a tenth of the promise: where short jobs come far
    apart, workers that end within a step undercut it.
    """

    def setting(row: SimulationResult) -> tuple[str, float, float]:
        return row.trace, row.sla_seconds, row.spawn_seconds

    wrong = {setting(row) for row in rows if row.keeps_promise and 0 < row.cost_ratio < 1}
    return [
        msgspec.structs.replace(row, bound_worker_seconds=0.0) if setting(row) in wrong else row
        for row in rows
    ]


def _answers(
    study: Study, cases: Sequence[Case], processes: int, progress: Progress, nice: int
) -> Iterator[Figures]:
    parallel = min(processes, len(cases)) > 1
    done: Array[c_double] | list[float] = (
        RawArray(c_double, len(cases)) if parallel else [0.0] * len(cases)
    )

    def answer(number: int) -> Figures:
        def note(share: float) -> None:
            # some controllers run the load several times to find what they aim at
            done[number] = max(share, done[number])
            if not parallel:
                progress(sum(done) / len(done))

        figures = solve(study, cases[number], note)
        note(1.0)
        return figures

    if not parallel:
        yield from map(answer, range(len(cases)))
        return
    with _Forked.pool(answer, min(processes, len(cases)), nice) as pool:
        yield from _watched(
            pool.imap(_Forked.call, range(len(cases))), lambda: progress(sum(done) / len(done))
        )


def _watched(answers: IMapIterator[Figures], report: Callable[[], None]) -> Iterator[Figures]:
    """The answers of other processes, with a report a few times a second."""
    while True:
        try:
            answer = answers.next(timeout=_REPORT_SECONDS)
        except multiprocessing.TimeoutError:
            report()
            continue
        except StopIteration:
            return
        report()
        yield answer


class _Forked:
    """Child processes inherit what they need by being forked; only numbers and figures travel."""

    answer: Callable[[int], Figures]

    @classmethod
    def pool(
        cls, answer: Callable[[int], Figures], processes: int, nice: int
    ) -> multiprocessing.pool.Pool:
        cls.answer = staticmethod(answer)
        # forked, so that loads of millions of jobs need not be pickled
        return multiprocessing.get_context("fork").Pool(processes, cls._begin, (os.getpid(), nice))

    @staticmethod
    def _begin(parent: int, nice: int) -> None:
        end_with(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the parent ends these
        os.nice(nice)

    @staticmethod
    def call(number: int) -> Figures:
        return _Forked.answer(number)


def solve(study: Study, case: Case, progress: Progress = no_progress) -> Figures:
    """One case; ``progress`` is called with the share that is done."""
    scene = _scene(study, case, progress)
    if not case.name:
        return _bound(scene)
    return figures(contenders.run(case.name, scene), case.sla)


def figures(run: Run, sla_seconds: float) -> Figures:
    """A run, summed up."""
    waits = np.asarray(run.waits) if run.waits else np.zeros(1)
    p50, p95, p99 = (float(wait) for wait in np.quantile(waits, (0.5, 0.95, 0.99)))
    return Figures(
        jobs=len(run.waits),
        late_share=float((waits > sla_seconds).mean()),
        wait_p50=p50,
        wait_p95=p95,
        wait_p99=p99,
        wait_max=float(waits.max()),
        worker_seconds=run.worker_seconds,
        actions=run.actions,
        reversals=run.reversals,
        unstarted=run.unstarted,
    )


def load_of(study: Study, trace: int, seed: int) -> Load:
    """The jobs of one trace and seed."""
    return draw(study.traces[trace], study.durations, thin=study.thin[trace], seed=seed)


def _scene(study: Study, case: Case, progress: Progress) -> Scene:
    profile = msgspec.structs.replace(study.profile, sla_seconds=case.sla, quantile=study.quantile)
    return Scene(
        load=load_of(study, case.trace, case.seed),
        profile=profile,
        strategies=study.strategies,
        spawning=study.spawns[case.spawn],
        seed=case.seed,
        slots=study.slots,
        progress=progress,
    )


def _bound(scene: Scene) -> Figures:
    least = bound_worker_seconds(
        scene.load,
        sla_seconds=scene.profile.sla_seconds,
        late_share=1 - scene.profile.quantile,
        spawn_seconds=scene.spawning.seconds,
    )
    nothing = dict.fromkeys(Figures.__struct_fields__, 0.0)
    return Figures(**{**nothing, "bound_worker_seconds": least / scene.slots})


def _row(
    study: Study, case: Case, runs: Sequence[Figures], bounds: Sequence[Figures]
) -> SimulationResult:
    means = {
        name: sum(getattr(run, name) for run in runs) / len(runs)
        for name in Figures.__struct_fields__
    }
    for name in ("wait_max", "unstarted"):
        means[name] = max(getattr(run, name) for run in runs)
    means["bound_worker_seconds"] = sum(b.bound_worker_seconds for b in bounds) / len(bounds)
    trace = study.traces[case.trace]
    return SimulationResult(
        **means,
        trace=trace.name,
        strategy=case.name,
        sla_seconds=case.sla,
        quantile=study.quantile,
        spawn_seconds=study.spawns[case.spawn].seconds,
        service=study.service,
        thin=study.thin[case.trace],
        hours=trace.duration_seconds / 3600,
        seeds=study.seeds,
        late_share_worst=max(run.late_share for run in runs),
    )
