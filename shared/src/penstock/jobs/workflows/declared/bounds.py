"""How much one judgement of a workflow may be, whatever its steps and results. Pure.

A judgement takes a few operations for each step, and for each part of its conditions, each path
that it reads and each key that it sets: :func:`work` counts these. What is compared, and what joins
make of results, is bounded by size (see :mod:`.values` and :mod:`.remembered`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.events.condition import Condition
from penstock.events.graph import GraphStep
from penstock.jobs.workflows.declared.definition import DeclaredStep

MAX_WORK = 20_000
MAX_RESULT_BYTES, MAX_RESULT_VALUES = 1_000_000, 100_000
"""Of one result that is looked into: encoded, and how many values its lists and objects hold."""
MAX_ALL_RESULTS_BYTES = 64_000_000
"""Of all results that conditions and joins of one workflow look into, in memory."""
BYTES_OF_A_VALUE = 64
"""Of an empty list in memory, which is one byte when it is encoded."""


def work(steps: Iterable[GraphStep]) -> int:
    """What is looked at in one judgement of a workflow that was started."""
    return sum(
        1 + _parts(step.when) + len(step.takes) + len(step.reads) + len(step.sets) for step in steps
    )


def declared_work(steps: Iterable[DeclaredStep]) -> int:
    """The same before branches are spelled out: each case repeats the condition of its step."""
    return sum(sum(_of_a_step(step)) for step in steps)


def refusal(work: int) -> str:
    """Why a workflow of so much work is not judged; empty if it is."""
    if work <= MAX_WORK:
        return ""
    return (
        f"its steps have {work:,} parts of conditions, paths that they read and keys that they "
        f"set, those of each case of a branch and of inner workflows included; expected at most "
        f"{MAX_WORK:,}"
    )


def _of_a_step(step: DeclaredStep) -> Iterator[int]:
    yield 1 + len(step.takes)
    if step.compensate is not None:
        yield 1 + len(step.compensate.takes)
    if step.branch is None:
        yield _parts(step.when) + len(step.sets)
        return
    calls, names = step.calls, len(step.branch.cases)
    of_each = 2 + len(step.sets)  # each case is a step, with the comparison that chooses it
    if step.when is not None:
        of_each += 1 + _parts(step.when)
    yield len(calls) * of_each + sum(len(call.takes) for call in calls)
    if step.branch.otherwise is not None:
        yield 1 + names  # it compares with the names of all other cases


def _parts(condition: Condition | None) -> int:
    """Of a condition, the items that it looks for included."""
    if condition is None:
        return 0
    choices = sum(len(side) for side in condition.comparison or () if isinstance(side, tuple))
    return 1 + choices + sum(map(_parts, condition.parts))
