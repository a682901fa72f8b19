"""Compares recorded decisions with recomputed ones, bit for bit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from penstock.decider.core.conclude import Decision
from penstock.decider.core.digest import digest
from penstock.decider.program import program
from penstock.decider.publishing.journal import Made, decision_event
from penstock.decider.replay.chain import Step
from penstock.decider.replay.recompute import Gap, Mismatch, Recorded, Result
from penstock.decider.replay.verdict import MOST_SHOWN, Difference, Unproven, Verdict
from penstock.events.envelope import encode
from penstock.events.record import CheckpointTaken, RoundDecided

_MOST_WAITING = 64
"""Rounds that a decision may be away from its record."""

Key = tuple[int, int]


class Verifier:
    """Fills a verdict.

    Args:
        pool: only the published decisions of this one are compared; rounds are recomputed whole.
    """

    def __init__(self, pool: str | None = None) -> None:
        self.verdict = Verdict()
        self._pool = pool
        self._steps: OrderedDict[Key, Step] = OrderedDict()
        self._waiting: dict[Key, list[Recorded]] = {}

    def take(self, result: Result, beyond: bool = False) -> bool:
        """True where the stretch ends: at the first checkpoint ``beyond`` it."""
        if isinstance(result, CheckpointTaken):
            return self._take_checkpoint(result, beyond)
        if self.verdict.first is None:  # nothing before the first checkpoint can be recomputed
            return False
        if isinstance(result, Step):
            self._take_step(result)
        elif isinstance(result, Recorded):
            self._take_recorded(result)
        elif isinstance(result, Gap):
            self._take_gap(result)
        elif isinstance(result, Mismatch):
            self._take_mismatch(result)
        elif len(self.verdict.unreadable) < MOST_SHOWN:
            self.verdict.unreadable.append(f"{result.subject}: {result.why}")
        return False

    def finish(self) -> Verdict:
        """Decisions still without their round are orphans, if their round should have come."""
        last = max(self._steps, default=(0, 0))
        self.verdict.orphans = sum(
            len(decisions) for key, decisions in self._waiting.items() if key < last
        )
        return self.verdict

    def _take_checkpoint(self, checkpoint: CheckpointTaken, beyond: bool) -> bool:
        self.verdict.last = (checkpoint.epoch, checkpoint.number)
        if self.verdict.first is None:
            self.verdict.first = self.verdict.last
        else:
            self.verdict.states += 1
            self.verdict.equal_states += 1
        return beyond

    def _take_step(self, step: Step) -> None:
        verdict, record = self.verdict, step.round
        key = (record.epoch, record.number)
        verdict.begins_at, verdict.ends_at = verdict.begins_at or record.at, record.at
        if record.program not in verdict.programs and len(verdict.programs) < MOST_SHOWN:
            verdict.programs.append(record.program)
        verdict.rounds += 1
        verdict.decisions += len(step.outcome.decisions)
        shown = len(verdict.differences)
        unequal = sum(not self._compare(step, recorded) for recorded in self._waiting.pop(key, ()))
        self._steps[key] = step
        if len(self._steps) > _MOST_WAITING:
            self._steps.popitem(last=False)
        if digest(step.outcome.decisions) == record.digest:
            verdict.equal_rounds += 1
            verdict.equal_decisions += len(step.outcome.decisions)
            return
        verdict.other_program += record.program != program()
        if not unequal and len(verdict.differences) == shown:
            self._show(record, "", "", ("decisions that were not published differ",))

    def _take_recorded(self, recorded: Recorded) -> None:
        if self._pool not in (None, recorded.decision.pool):
            return
        key = (recorded.decision.epoch, recorded.decision.round)
        if key in self._steps:
            self._compare(self._steps[key], recorded)
        else:
            self._waiting.setdefault(key, []).append(recorded)

    def _compare(self, step: Step, recorded: Recorded) -> bool:
        record, differences = recorded.decision, unlike(step, recorded)
        self.verdict.published += 1
        if not differences:
            self.verdict.equal_published += 1
            return True
        self._show(step.round, record.pool, record.id, differences)
        return False

    def _take_gap(self, gap: Gap) -> None:
        self.verdict.gaps += 1
        if gap.why and len(self.verdict.unproven) < MOST_SHOWN:
            record = gap.round
            self.verdict.unproven.append(
                Unproven(at=record.at, epoch=record.epoch, round=record.number, why=gap.why)
            )

    def _take_mismatch(self, mismatch: Mismatch) -> None:
        self.verdict.equal_states -= 1
        what = tuple(_differing(mismatch.recorded, mismatch.recomputed, "state"))
        self._show(mismatch.checkpoint, "", "", what)

    def _show(
        self, record: RoundDecided | CheckpointTaken, pool: str, id_: str, what: tuple[str, ...]
    ) -> None:
        if len(self.verdict.differences) < MOST_SHOWN:
            self.verdict.differences.append(
                Difference(
                    at=record.at,
                    epoch=record.epoch,
                    round=record.number,
                    pool=pool,
                    decision=id_,
                    program=record.program,
                    what=what,
                )
            )


def unlike(step: Step, recorded: Recorded) -> tuple[str, ...]:
    """The differences between a recorded decision and the recomputed one, a sentence each.

    Empty only where the bytes are equal. The one comparison of `penstock replay` and of `penstock
    decision explain`.
    """
    recomputed = _recomputed(step, recorded)
    if recomputed == recorded.raw:
        return ()
    if recomputed is None:
        return ("no such decision is made",)
    sentences = _differing(msgspec.json.decode(recorded.raw), msgspec.json.decode(recomputed), "")
    return tuple(sentences) or ("the same values, written in other bytes",)


def _recomputed(step: Step, recorded: Recorded) -> bytes | None:
    """The event of the recomputed decision, with the recorded id and source; None for none."""
    record = recorded.decision
    decision = _of(step, record.pool)
    if decision is None:
        return None
    made = Made(
        epoch=step.round.epoch,
        round=step.round.number,
        through=step.round.through,
        now=step.round.at.timestamp(),
    )
    return encode(decision_event(decision, made, record.source, record.id))


def _of(step: Step, pool: str) -> Decision | None:
    decisions = step.outcome.decisions
    return next((decision for decision in decisions if decision.pool == pool), None)


def _differing(recorded: Any, recomputed: Any, name: str) -> Iterator[str]:
    if isinstance(recorded, Mapping) and isinstance(recomputed, Mapping):
        for key in [*recorded, *(key for key in recomputed if key not in recorded)]:
            path = f"{name}.{key}" if name else str(key)
            yield from _differing(recorded.get(key), recomputed.get(key), path)
    elif (
        isinstance(recorded, list)
        and isinstance(recomputed, list)
        and len(recorded) == len(recomputed)
    ):
        for number, (one, other) in enumerate(zip(recorded, recomputed, strict=True), 1):
            yield from _differing(one, other, f"{name}[{number}]")
    # 1 equals 1.0 and True in Python, but not in the bytes of the log
    elif recorded != recomputed or type(recorded) is not type(recomputed):
        yield f"{name}: recorded {_short(recorded)}, recomputed {_short(recomputed)}"


def _short(value: Any) -> str:
    text = "nothing" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else text[:200] + "…"
