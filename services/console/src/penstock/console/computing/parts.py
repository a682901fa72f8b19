"""All that a console computes in child processes, and what endpoints and pages ask of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from penstock.config import Settings
from penstock.console.computing.commands import (
    COMMAND,
    Commands,
    ComputationFailed,
    Limits,
    TooManyComputations,
)
from penstock.console.computing.shared_answers import SharedAnswers
from penstock.console.computing.simulations import Simulations
from penstock.console.core.computing import OtherSettings, explain_command
from penstock.console.web.rate_limits import RateLimits
from penstock.events.scaling import ScalingDecisionMade
from penstock.runtime.service import Service

AT_ONCE = 2
"""Decisions that are recomputed at the same time, one a person, besides one simulation."""
A_MINUTE = 20
"""Computations that one person may begin; answers that are kept do not count."""
LIMITS = Limits(seconds=30.0)
_MOST_KEPT = 500
_NOT_IN_THE_LOG = "not in the log"
_LIMITED = "computations are allowed a minute; answers that were computed before are shown at once"


class InputChange(msgspec.Struct, frozen=True, kw_only=True):
    """The least change of one input that would have changed the number of workers.

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


class Recomputed(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, computed again from the log.

    Attributes:
        recomputed: ``equal`` (bit for bit), ``different``, ``other program`` (it differs, and
            another version decided) or ``not in the log``.
        why: where it is not equal: what differs, or what is missing.
        changes: that would each have changed the number; nearest first.
        instead: what the same round would have decided under other settings; None where none were
            asked for, or the round is not in the log.
    """

    recomputed: str
    why: tuple[str, ...] = ()
    changes: tuple[InputChange, ...] = ()
    instead: ScalingDecisionMade | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A decision to recompute.

    Attributes:
        decision_id: of the decision.
        sequence: of its event.
        pool: that it is about.
        other: settings to decide its round under; None for those of the time.
    """

    decision_id: str
    sequence: int
    pool: str
    other: OtherSettings | None = None

    def under(self, other: OtherSettings) -> Question:
        """The same decision under other settings."""
        return msgspec.structs.replace(self, other=other)


class Computing:
    """Recomputes decisions and runs simulations.

    Args:
        settings: of this process.
        folder: of the console's files.
        changed: called when something that pages show has changed.
        command: of Python, that runs `penstock`; tests put another program there.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        changed: Callable[[], None],
        command: Sequence[str] = COMMAND,
    ) -> None:
        place = folder / "computing"
        self.commands = Commands(settings, place, AT_ONCE, command)
        self.simulations = Simulations(Commands(settings, place, 1, command), changed)
        self._answers = SharedAnswers[Recomputed](
            _MOST_KEPT, keeps=lambda answer: answer.recomputed != _NOT_IN_THE_LOG
        )
        self._limits = RateLimits(A_MINUTE, _LIMITED)

    def kept(self, question: Question) -> Recomputed | None:
        """An answer that was computed before; None where it was not, or is not kept any more."""
        return self._answers.kept(question)

    async def recompute(self, question: Question, caller: str) -> Recomputed:
        """Computes a decision again; equal questions share one process.

        Args:
            question: what to compute.
            caller: the person, all of whose tokens and browsers count as one.

        Raises:
            TooManyRequestsException: this caller began as many within this minute as allowed.
            TooManyComputations: as many run as may run at once, or one of this caller's.
            BadComputation: no decider could work with the settings.
            ComputationFailed: it cannot be computed.
        """
        if (kept := self.kept(question)) is not None:
            return kept
        if not self._answers.is_computed(question):
            self.commands.check_free()
            if self._answers.is_computed_for(caller):
                raise TooManyComputations("one of your computations runs; try again in a moment")
            self.count(caller)
        return await self._answers.answer(question, lambda: self._recompute(question), caller)

    def count(self, caller: str) -> None:
        """Counts a computation that a caller begins. Raises TooManyRequestsException."""
        self._limits.take(caller)

    async def run(self, service: Service) -> None:
        """Waits until the service stops, and leaves no process behind."""
        try:
            await service.stopping.wait()
        finally:
            await self._answers.end()
            await self.simulations.end()

    async def _recompute(self, question: Question) -> Recomputed:
        command = explain_command(
            question.decision_id, question.sequence, question.pool, question.other
        )
        output = await self.commands.run(command, LIMITS)
        try:
            return msgspec.json.decode(output, type=Recomputed)
        except msgspec.MsgspecError as error:
            # Without the decider the command explains a decision by its recorded reasons alone.
            raise ComputationFailed(
                "this needs the package penstock-decider beside the console, of the same version"
            ) from error
