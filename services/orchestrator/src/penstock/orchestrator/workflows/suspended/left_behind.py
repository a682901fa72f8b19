"""Steps that a workflow does not wait for any more: cancelled at once, before it may end itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.bus import bounded
from penstock.bus.protocol import BusError
from penstock.events.workflow_memo import TIMED_OUT, StepKind
from penstock.jobs import lifecycle
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.workflows.coded import memo
from penstock.orchestrator.workflows.suspended.step_jobs import StepJobs
from penstock.runtime.poison_messages import skipping_poison

_AT_ONCE = 50


class LeftBehind:
    """Cancels them, as far as the workflow's own history says the same: an event alone may be one
    that does not count.

    Args:
        log: reads workflows.
        steps: cancels their steps.
    """

    def __init__(self, log: JobLog, steps: StepJobs) -> None:
        self._log, self._steps = log, steps
        self._kinds: dict[str, dict[int, StepKind]] = {}
        self._unknown: dict[str, int] = {}

    def add(self, key: str, kinds: Mapping[int, StepKind]) -> None:
        """Has these looked into.

        Args:
            key: id of the workflow.
            kinds: the steps, by number.
        """
        self._kinds.setdefault(key, {}).update(kinds)

    def add_unknown(self, key: str, sequence: int) -> None:
        """Has those looked into that a generation of a workflow left behind.

        Args:
            key: id of the workflow.
            sequence: of the event by which it began anew.
        """
        self._unknown[key] = sequence

    async def cancel(self) -> None:
        """Cancels those that came so far. Raises BusError: what is left is tried again."""
        await self._read_unknown()
        kinds, self._kinds = self._kinds, {}
        try:
            await bounded.gather(lambda key: self._cancel(key, kinds[key]), list(kinds), _AT_ONCE)
        except BusError:
            for key, of_one in kinds.items():
                self.add(key, of_one)
            raise

    async def _read_unknown(self) -> None:
        """Reads what earlier generations waited for."""
        for key, sequence in list(self._unknown.items()):
            with skipping_poison(f"workflow {key}"):
                events = [event for event in await self._log.history(key) if event[0] < sequence]
                record = lifecycle.fold(events)
                recorded = (record and record.workflow) or memo.EMPTY
                steps = memo.open_steps(recorded).values()
                self.add(key, {s.n: s.kind for s in steps if s.is_job or s.kind == "batch"})
            del self._unknown[key]

    async def _cancel(self, key: str, kinds: Mapping[int, StepKind]) -> None:
        with skipping_poison(f"workflow {key}"):
            given_up = abandoned(await self._log.read(key), kinds)
            reason = f"workflow {key} does not wait for it any more"
            await self._steps.cancel(key, {n: kinds[n] for n in given_up}, reason)


def is_over(record: JobRecord | None) -> bool:
    """Whether a workflow never goes on; one that is dead may be requeued, with what it waits for.

    Args:
        record: None for one whose history has left the log, since it has ended.
    """
    if record is None:
        return True
    return record.state.ended and (record.state is not State.DEAD or has_timed_out(record))


def has_timed_out(record: JobRecord) -> bool:
    """Whether a workflow is dead since the whole of it took too long."""
    return record.error is not None and record.error.kind == TIMED_OUT


def abandoned(record: JobRecord | None, numbers: Iterable[int]) -> list[int]:
    """Those of these steps that a workflow waits for no more, by its history.

    Args:
        record: of the workflow; None for one whose history has left the log, since it has ended.
        numbers: of steps.
    """
    if record is None or is_over(record):
        return list(numbers)
    recorded = record.workflow or memo.EMPTY
    given_up = {n for entry in recorded.entries for n in entry.cancelled}
    return [n for n in numbers if n in given_up or n < recorded.first_number]
