"""What the shell is to do for a batch or graph. Values, nothing else."""

from __future__ import annotations

import msgspec

from penstock.events.batch import Callbacks
from penstock.events.envelope import Event
from penstock.jobs.batches.outcome import Outcome


class Append(msgspec.Struct, frozen=True):
    """Append this event, if ``sequence`` is still the last of its aggregate."""

    event: Event
    sequence: int


class Cancel(msgspec.Struct, frozen=True):
    """Cancel these jobs, as far as they have not ended."""

    job_ids: tuple[str, ...]
    reason: str


class StartSteps(msgspec.Struct, frozen=True):
    """Dispatch the jobs of these steps."""

    indices: tuple[int, ...]


class ReadResults(msgspec.Struct, frozen=True):
    """Read the results of these steps: conditions of others need them. Then decide once more."""

    indices: tuple[int, ...]


class Requeue(msgspec.Struct, frozen=True):
    """Requeue the jobs of these steps, as far as they are dead or cancelled."""

    indices: tuple[int, ...]


class CallBack(msgspec.Struct, frozen=True):
    """Dispatch the callbacks that apply, then forget the batch or graph: it has ended.

    Attributes:
        success: None where neither then nor catch applies.
        round: how often it was reopened.
    """

    callbacks: Callbacks
    outcome: Outcome
    success: bool | None
    round: int = 0


Instruction = Append | Cancel | StartSteps | ReadResults | Requeue | CallBack
