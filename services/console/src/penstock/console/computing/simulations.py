"""Simulations that run behind the requests which began them, one after the other, people in turns.

They are kept in memory: for a bounded time, a bounded number of them, and not beyond the end of
this process; later requests are answered with 410 and the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec
from litestar.exceptions import HTTPException, NotFoundException, TooManyRequestsException

from penstock.console.computing.commands import (
    Commands,
    ComputationFailed,
    Limits,
    TooManyComputations,
)
from penstock.console.computing.turns import Turns
from penstock.console.core.computing import OtherSettings, simulate_command
from penstock.events.envelope import new_id, utc_now

log = logging.getLogger("penstock.console")

LIMITS = Limits(seconds=600.0, memory_bytes=2 * 1024**3, output_bytes=256 * 1024)
KEPT = timedelta(hours=1)
"""After its end."""
MOST_KEPT = 200
MOST_UNFINISHED = 8
MOST_OF_A_PERSON = 2
"""Unfinished ones."""
MOST_SECONDS_OF_A_PERSON = 1800.0
"""That the simulations of one person, of those which are kept, may have run."""
_GONE = 410
_UUID7 = 7

State = Literal["queued", "running", "done", "failed", "aborted"]


class SimulatedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of the past under one kind of settings.

    Attributes:
        settings: the pool, and which settings: ``as set``, ``instead``, or a fixed fleet.
        hours: from the first job to the last.
        late_share: of the jobs, later than promised by these settings; 0 to 1.
        keeps_promise: whether that is no more than these settings allow.
        wait_p95: seconds; 95 % of the jobs waited less.
        wait_max: the longest wait, in seconds.
        worker_seconds: of all workers, starting and draining included.
        actions: changes of the number of workers.
        fixed_workers: the size of a fixed fleet; 0 for settings that scale.
    """

    settings: str
    jobs: int
    hours: float
    late_share: float
    keeps_promise: bool
    wait_p95: float
    wait_max: float
    worker_seconds: float
    actions: float
    fixed_workers: int = 0


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """What another setting would have done.

    Attributes:
        by: who began it.
        settings: that are tried.
        since_seconds: how far back its jobs came, from ``asked_at``.
        spawn_seconds: that a worker takes to start.
        share: of it that is done, 0 to 1.
        problem: why there is no result; empty where there is one, or is to be one.
        result: as set, instead, and the smallest fixed fleet that keeps the promise.
    """

    id: str
    pool: str
    by: str
    settings: OtherSettings
    since_seconds: float
    spawn_seconds: float
    asked_at: datetime
    state: State = "queued"
    share: float = 0.0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    problem: str = ""
    result: tuple[SimulatedFleet, ...] = ()

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it will change any more."""
        return self.state in ("done", "failed", "aborted")


class Simulations:
    """Runs and keeps simulations.

    Args:
        commands: runs one at a time, apart from other computations.
        changed: called when something that pages show has changed.
    """

    def __init__(self, commands: Commands, changed: Callable[[], None]) -> None:
        self._commands, self._changed = commands, changed
        self._all: dict[str, Simulation] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._people: dict[str, str] = {}
        """Who began each simulation: all tokens of a person are one."""
        self._turns = Turns()

    def newest_first(self, pool: str = "") -> list[Simulation]:
        """Those that are kept, of one pool or of all."""
        self._forget_old()
        return [one for one in reversed(self._all.values()) if pool in ("", one.pool)]

    def get(self, simulation_id: str) -> Simulation:
        """One simulation.

        Raises:
            NotFoundException: there was none of this id.
            HTTPException: it is not kept any more, or ended with its console (410).
        """
        self._forget_old()
        simulation = self._all.get(simulation_id)
        if simulation is not None:
            return simulation
        if _was_made_before(simulation_id):
            raise HTTPException(
                "a simulation is kept for an hour, in the memory of the console that ran it: it is "
                "gone when that console ends or starts anew; begin it again",
                status_code=_GONE,
            )
        raise NotFoundException(f"there is no simulation {simulation_id[:64]!r}")

    def begin(
        self,
        pool: str,
        settings: OtherSettings,
        since_seconds: float,
        spawn_seconds: float,
        by: str,
        person: str,
    ) -> Simulation:
        """Begins one; returns at once.

        Args:
            pool: whose jobs arrive again.
            settings: that are tried.
            since_seconds: how far back.
            spawn_seconds: that a worker takes to start.
            by: who asks.
            person: behind that token or browser.

        Raises:
            TooManyRequestsException: this person has as many unfinished ones as allowed, or they
                ran for as long as allowed.
            TooManyComputations: all together have.
        """
        self._forget_old()
        unfinished = [one for one in self._all.values() if not one.has_ended]
        self._check_share(person, unfinished)
        if len(unfinished) >= MOST_UNFINISHED:
            raise TooManyComputations(
                f"{MOST_UNFINISHED} simulations have not ended; try again later"
            )
        simulation = Simulation(
            id=new_id(),
            pool=pool,
            by=by,
            settings=settings,
            since_seconds=since_seconds,
            spawn_seconds=spawn_seconds,
            asked_at=utc_now(),
        )
        self._all[simulation.id], self._people[simulation.id] = simulation, person
        task = asyncio.create_task(self._run(simulation.id))
        self._tasks[simulation.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(simulation.id, None))
        self._changed()
        return simulation

    async def abort(self, simulation_id: str) -> Simulation:
        """Ends one that has not ended; returns when its process is dead. Raises as :meth:`get`."""
        simulation = self.get(simulation_id)
        if not simulation.has_ended:
            self._update(simulation_id, state="aborted", ended_at=utc_now())
            if (task := self._tasks.get(simulation_id)) is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        return self.get(simulation_id)

    async def end(self) -> None:
        """Ends all of them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _check_share(self, person: str, unfinished: Sequence[Simulation]) -> None:
        if sum(self._people[one.id] == person for one in unfinished) >= MOST_OF_A_PERSON:
            raise TooManyRequestsException(
                f"{person} has {MOST_OF_A_PERSON} simulations that have not ended; wait, or abort "
                "one",
                headers={"Retry-After": "10"},
            )
        now = utc_now()
        spent = sum(
            ((one.ended_at or now) - one.started_at).total_seconds()
            for one in self._all.values()
            if one.started_at is not None and self._people[one.id] == person
        )
        if spent >= MOST_SECONDS_OF_A_PERSON:
            raise TooManyRequestsException(
                f"the simulations of {person} ran for {spent / 60:.0f} minutes within the last "
                f"hour, of {MOST_SECONDS_OF_A_PERSON / 60:.0f}; try again later",
                headers={"Retry-After": "600"},
            )

    async def _run(self, simulation_id: str) -> None:
        async with self._turns.turn(self._people[simulation_id]):
            begun = self._update(simulation_id, state="running", started_at=utc_now())
            command = simulate_command(
                begun.pool, begun.settings, begun.since_seconds, begun.spawn_seconds
            )
            try:
                output = await self._commands.run(
                    command, LIMITS, lambda share: self._show(simulation_id, share)
                )
                result = msgspec.json.decode(output, type=tuple[SimulatedFleet, ...])
            except ComputationFailed as error:
                self._end(simulation_id, "failed", problem=str(error))
            except (TooManyComputations, msgspec.MsgspecError) as error:
                log.error("simulation %s failed: %r", simulation_id, error)
                self._end(simulation_id, "failed", problem="the console's log says why")
            else:
                self._end(simulation_id, "done", result=result)

    def _end(
        self,
        simulation_id: str,
        state: State,
        *,
        problem: str = "",
        result: Sequence[SimulatedFleet] = (),
    ) -> None:
        share = 1.0 if state == "done" else self._all[simulation_id].share
        self._update(
            simulation_id,
            state=state,
            share=share,
            ended_at=utc_now(),
            problem=problem,
            result=tuple(result),
        )

    def _show(self, simulation_id: str, share: float) -> None:
        if share != self._all[simulation_id].share:
            self._update(simulation_id, share=share)

    def _update(self, simulation_id: str, **fields: object) -> Simulation:
        changed = msgspec.structs.replace(self._all[simulation_id], **fields)
        self._all[simulation_id] = changed
        self._changed()
        return changed

    def _forget_old(self) -> None:
        ended = [one for one in self._all.values() if one.ended_at is not None]
        oldest = utc_now() - KEPT
        surplus = max(0, len(self._all) - MOST_KEPT)
        for number, one in enumerate(ended):
            if number < surplus or (one.ended_at and one.ended_at < oldest):
                del self._all[one.id], self._people[one.id]


def _was_made_before(simulation_id: str) -> bool:
    """Whether it is an id that a console made, by its form and its time."""
    try:
        parsed = UUID(simulation_id)
    except ValueError:
        return False
    made_at = (parsed.int >> 80) / 1000
    return parsed.version == _UUID7 and made_at <= datetime.now(UTC).timestamp()
