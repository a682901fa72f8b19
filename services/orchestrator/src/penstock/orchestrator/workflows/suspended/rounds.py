"""One round of looking after suspended workflows: those of which something came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.bus import bounded
from penstock.bus.protocol import BusError, Stored
from penstock.orchestrator.core.suspended import SuspendedWorkflow
from penstock.orchestrator.workflows.suspended.agenda import Agenda
from penstock.orchestrator.workflows.suspended.blocked_workflows import BlockedWorkflows
from penstock.orchestrator.workflows.suspended.doubted_events import DoubtedEvents, RunEvent
from penstock.orchestrator.workflows.suspended.left_behind import LeftBehind
from penstock.orchestrator.workflows.suspended.settling import Settling
from penstock.orchestrator.workflows.suspended.wake_ups import WakeUps
from penstock.runtime.poison_messages import skipping_poison

_AT_ONCE = 100


class Rounds:
    """What is done in each of them, in this order.

    Args:
        unfinished: all workflows, by id.
        agenda: which of them are due.
        doubts: events that are believed once they are proven.
        believe: takes one of these as if it had been expected.
        left_behind: steps to be cancelled.
        blocked: those that an event names as blocked.
        wake_ups: wakes those of which nothing is in doubt.
        settling: looks after the others.
    """

    def __init__(
        self,
        unfinished: Mapping[str, SuspendedWorkflow],
        agenda: Agenda,
        doubts: DoubtedEvents,
        believe: Callable[[str, RunEvent, Stored], None],
        left_behind: LeftBehind,
        blocked: BlockedWorkflows,
        wake_ups: WakeUps,
        settling: Settling,
    ) -> None:
        self._unfinished, self._agenda = unfinished, agenda
        self._doubts, self._believe = doubts, believe
        self._left_behind, self._blocked = left_behind, blocked
        self._wake_ups, self._settling = wake_ups, settling

    async def run(self, now: float) -> None:
        """Looks after those of which something came, and those that were not looked at for long.

        Args:
            now: POSIX seconds by the broker's clock.

        Raises:
            BusError: what is left is looked at later.
        """
        due = self._agenda.take(now)
        try:
            with skipping_poison("a round of doubted events"):
                due |= await self._settle_doubts()
            with skipping_poison("a round of steps left behind"):
                await self._left_behind.cancel()
            with skipping_poison("a round of blocked workflows"):
                await self._blocked.read()
            with skipping_poison("a round of wake-ups"):  # those are looked after one by one
                due -= await self._wake_at_once(due, now)
            look_after = self._settling.look_after
            await bounded.gather(lambda key: look_after(key, now), sorted(due), _AT_ONCE)
        except BusError:
            self._agenda.give_back(due)
            raise

    async def _settle_doubts(self) -> set[str]:
        """Believes what is proven, and has the other workflows read; returns the ids of all."""
        proven, others = await self._doubts.proven()
        for one in proven:
            with skipping_poison(f"event {one.stored.sequence}"):
                self._believe(one.event.key, one.event, one.stored)
        self._agenda.unknown.update(others)
        return {*others, *(one.event.key for one in proven)}

    async def _wake_at_once(self, keys: Iterable[str], now: float) -> set[str]:
        """Wakes those of which nothing is in doubt, together; returns their ids."""
        due = {
            key: workflow
            for key in keys
            if (workflow := self._unfinished.get(key)) is not None
            and workflow.is_due
            and not workflow.is_unread
            and key not in self._agenda.unknown
            and now < workflow.check_at
        }
        return await self._wake_ups.wake_known(due, now)
