"""Carries bulk actions out, by the console that leads; the next one goes on where it stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import msgspec

from penstock.bus.protocol import Bus, BusError, WrongSequence
from penstock.config import Settings
from penstock.console.bulk.directory import Directory
from penstock.console.bulk.effects import Effects, refused
from penstock.console.core.bulk.actions import Action, BulkState, Position, Progress
from penstock.console.core.bulk.verbs import Selection, selection
from penstock.console.core.job_query import BadFilter
from penstock.events.bulk import BulkAborted, BulkEnded, BulkEvent, BulkProgressed
from penstock.events.subjects import Subjects
from penstock.jobs.bulk.client import Effect
from penstock.operations.audit_log import AuditLog
from penstock.runtime.lease import Lease, Term
from penstock.runtime.service import Service

log = logging.getLogger("penstock.console.bulk")

KIND, LEASE = "bulk", "lease"
LEASE_SECONDS = 6.0
MOST_AT_ONCE = 500
_LOOK_SECONDS = 0.5
_PARTS_A_SECOND = 5
_NOTED_SHARE, _NOTED_MIN_SECONDS, _NOTED_MAX_SECONDS = 0.01, 1.0, 15.0
"""Progress is stored each hundredth of the time that an action has taken: of a long one seldom."""
_RETRY_SECONDS = 1.0

NextPart = Callable[
    [Action, Selection, Position | None, int], Awaitable[list[tuple[Any, Position]]]
]
"""The next rows of an action's set, each with its place."""


class Runner:
    """Runs while this console holds the lease: all actions that are not paused, side by side.

    Args:
        bus: a connection of this service.
        settings: of this process.
        directory: all actions.
        audit: where the end of each action is recorded.
        next_part: reads the set of an action.
        holder: unique among consoles.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        directory: Directory,
        audit: AuditLog,
        next_part: NextPart,
        holder: str,
    ) -> None:
        subjects = Subjects(settings.prefix)
        self._bus, self._settings, self._directory = bus, settings, directory
        self._audit, self._next_part = audit, next_part
        self._lease = Lease(
            bus, subjects.state_stream, subjects.state(KIND, LEASE), holder, LEASE_SECONDS
        )

    async def run(self, service: Service) -> None:
        """Leads whenever the lease is free, until the service stops."""
        service.spawn(self._lease.watch(), "lease of bulk actions")
        while not service.stopping.is_set():
            async with self._lease.holding() as term:
                await self._lead(service, term)
            await service.pause(_RETRY_SECONDS)

    async def _lead(self, service: Service, term: Term) -> None:
        """Starts a task for each action that runs."""
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while term.held and not service.stopping.is_set():
                for action in [*self._directory.newest_first()]:
                    task = tasks.get(action.id)
                    if action.state is BulkState.RUNNING and (task is None or task.done()):
                        tasks[action.id] = asyncio.create_task(self._carry_on(action.id, term))
                await service.pause(_LOOK_SECONDS)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _carry_on(self, action_id: str, term: Term) -> None:
        try:
            await self._go_through(action_id, term)
        except WrongSequence:
            log.info("bulk action %s was changed by another process", action_id)
        except BusError as error:
            log.warning("bulk action %s stops for a moment: %s", action_id, error)
            await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError as error:
            log.warning("bulk action %s waits: %s", action_id, error)
        except Exception:
            log.exception("bulk action %s failed", action_id)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _go_through(self, action_id: str, term: Term) -> None:
        """Goes on from the last progress that was stored, until all is done or it is paused."""
        action = self._directory.get(action_id)
        if action is None:
            return
        try:
            chosen = chosen_by(action)
        except BadFilter as error:  # it was started by a console of a later version
            await self._end(action, BulkAborted(bulk_id=action.id), str(error))
            return
        effects = Effects(self._bus, self._settings, action, chosen)
        began = noted_at = time.monotonic()
        progress = action.progress
        counted = await effects.acted_on(progress.counted_to or action.start.position)
        progress = msgspec.structs.replace(progress, done=progress.done + len(counted))
        while term.held and action.state is BulkState.RUNNING:
            due = time.monotonic() + 1 / _PARTS_A_SECOND
            most = min(MOST_AT_ONCE, max(1, action.per_second // _PARTS_A_SECOND))
            rows = await self._next_part(action, chosen, progress.after, most)
            if rows:
                progress = await self._act(effects, rows, progress, counted)
            is_due = time.monotonic() - noted_at > _seconds_between_notes(began)
            if progress != action.progress and (is_due or not rows):
                action = await self._note(action, progress)
                progress = msgspec.structs.replace(progress, counted_to=action.progress.counted_to)
                noted_at = time.monotonic()
            if not rows:
                await self._end(action, BulkEnded(bulk_id=action.id))
                return
            needed = len(rows) / action.per_second - 1 / _PARTS_A_SECOND
            await asyncio.sleep(max(0.0, due + needed - time.monotonic()))
            action = self._directory.get(action_id) or action
        if term.held and progress != action.progress:
            await self._note(action, progress)

    async def _act(
        self,
        effects: Effects,
        rows: Sequence[tuple[Any, Position]],
        progress: Progress,
        counted: Collection[str],
    ) -> Progress:
        outcomes = await effects.act([row.id for row, _ in rows if row.id not in counted])
        done = sum(one.effect is Effect.DONE for one in outcomes)
        return progress.plus(done, refused(outcomes), rows[-1][1])

    async def _note(self, action: Action, progress: Progress) -> Action:
        """Stores how far the action is, whatever a person did to it meanwhile."""
        extent = await self._bus.extent(Subjects(self._settings.prefix).events_stream)
        event = BulkProgressed(
            bulk_id=action.id,
            source="console",
            after=progress.after,
            counted_to=extent.last,
            done=progress.done,
            refused=progress.refused,
            reasons=progress.reasons,
            examples=progress.examples,
        )
        return await self._store(action, event)

    async def _end(self, action: Action, event: BulkEvent, detail: str = "") -> None:
        action = await self._store(action, event)
        await self._audit.record(
            action.start.by or "console",
            "bulk.end",
            "done" if action.state is BulkState.DONE else "failed",
            target=f"bulk:{action.id}",
            after={
                "verb": f"{action.start.verb} {action.start.target}",
                "done": str(action.progress.done),
                "refused": str(action.progress.refused),
                "total": str(action.start.total),
            },
            detail=detail,
        )

    async def _store(self, action: Action, event: BulkEvent) -> Action:
        """Raises WrongSequence: it changes all the time."""
        try:
            return await self._directory.store(event, action.sequence) or action
        except WrongSequence:
            newer = await self._directory.changed_since(action.sequence, action.id, 1.0)
            if newer is None or (newer.state.ended and isinstance(event, BulkEnded)):
                raise
            return await self._directory.store(event, newer.sequence) or newer


def chosen_by(action: Action) -> Selection:
    """The set of an action. Raises BadFilter: this version does not know what it names."""
    start = action.start
    return selection(start.target, start.verb, start.filter, start.ids, start.queues or None)


def _seconds_between_notes(began: float) -> float:
    seconds = (time.monotonic() - began) * _NOTED_SHARE
    return min(_NOTED_MAX_SECONDS, max(_NOTED_MIN_SECONDS, seconds))
