"""When the steps of a workflow ended, and which end let each of them begin. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile

from msgspec.structs import replace

from penstock.events.workflow_memo import CANCEL_KEY, MemoEntry, WorkflowMemo
from penstock.jobs.workflows.coded.memo import goes_on, open_steps, scheduled_steps
from penstock.jobs.workflows.step_view import StepView

_RACE = "race"
_NEVER = datetime.max.replace(tzinfo=UTC)
_WITHOUT_JOB = ("fired", "timed-out", "received")
_FAILED = ("failed", "cancelled", "timed-out")


def with_exact_ends(
    steps: Iterable[StepView], memo: WorkflowMemo, sent_at: Mapping[int, datetime]
) -> Iterator[StepView]:
    """The steps, of which timers and signals ended when they fired and were sent.

    A workflow takes note of them later: when a worker is free, or what else it waits for has ended.

    Args:
        steps: in the order of their recording.
        memo: that they were read from.
        sent_at: when signals were sent, by the sequences of their events.
    """
    sequences = {end.key: end.sequence for entry in memo.entries for end in entry.consumed}
    for step in steps:
        at = step.due_at
        if step.outcome == "received":
            at = sent_at.get(sequences.get(step.key, 0))
        if step.ended_at is None or at is None or step.outcome not in _WITHOUT_JOB:
            yield step
        else:
            yield replace(step, ended_at=min(step.ended_at, max(step.since, at)))


def with_last_ends(
    steps: Iterable[StepView],
    memo: WorkflowMemo,
    finished_at: datetime,
    sent_at: Iterable[tuple[str, datetime]],
    *,
    has_completed: bool = True,
) -> list[StepView]:
    """The steps of a workflow that has ended: what it took note of last is recorded nowhere.

    A step whose end came before that of the workflow counts; one that was still open, and the
    losers of a race, were given up.

    Args:
        steps: those of jobs and batches as these are now.
        memo: that they were read from.
        finished_at: when the workflow ended.
        sent_at: names and times of signals that no wait is recorded to have consumed.
        has_completed: its code returned, so that what it waited for has ended, also where another
            clock or the count of a batch lags behind.
    """
    unread = list(sent_at)
    unnoted = open_steps(memo)
    last = memo.entries[-1].inline if memo.entries else None

    def end(step: StepView) -> StepView:
        if last is not None and step.key == last.key:
            return replace(step, ended_at=finished_at)
        return _ended(step, finished_at, unread) if step.key in unnoted else step

    ended = [end(step) for step in steps]
    if has_completed:
        late = _late(ended, memo)
        ended = [_as_ended(step) if step.key in late else step for step in ended]
    losers = _losers(step for step in ended if step.key in unnoted)
    return [replace(step, outcome="given-up") if step.key in losers else step for step in ended]


def _ended(step: StepView, finished_at: datetime, unread: list[tuple[str, datetime]]) -> StepView:
    if step.outcome == "waiting":
        step = _end_without_job(step, unread)
    if step.kind == "batch" and step.outcome in ("completed", "failed") and step.ended_at:
        return replace(step, ended_at=min(step.ended_at, finished_at))  # it is counted later
    if step.ended_at is None or step.ended_at > finished_at:
        return replace(step, outcome="given-up", ended_at=finished_at)
    return step


def _end_without_job(step: StepView, unread: list[tuple[str, datetime]]) -> StepView:
    if step.kind == "timer":
        return replace(step, outcome="fired", ended_at=step.due_at)
    if step.kind != "signal":
        return step
    at = next((at for name, at in unread if name == step.signal), None)
    if at is not None and (step.due_at is None or at < step.due_at):
        unread.remove((step.signal, at))
        return replace(step, outcome="received", ended_at=max(step.since, at))
    return replace(step, outcome="timed-out", ended_at=step.due_at)


def _late(steps: Sequence[StepView], memo: WorkflowMemo) -> set[str]:
    """Keys of steps that look open, and must have ended for the workflow to go on."""
    numbers = {step.key: step.n for step in scheduled_steps(memo).values()}
    by_number = {numbers[step.key]: step for step in steps if step.key in numbers}
    forgotten = {n: True for group in memo.wait for n in group.steps if n not in by_number}
    has_ended = forgotten | {
        n: step.outcome not in _FAILED
        for n, step in by_number.items()
        if step.outcome != "given-up"
    }
    if goes_on(memo.wait, has_ended):
        return set()
    missing = [[by_number[n] for n in group.steps if n not in has_ended] for group in memo.wait]
    likely = min(missing, key=_unlikely, default=[])
    return {step.key for step in likely}


def _unlikely(open_steps: Iterable[StepView]) -> tuple[int, int, datetime]:
    """Orders groups by how probable it is that these have ended: ends of jobs are exact."""
    kinds = [step.kind for step in open_steps]
    exact = sum(kind not in ("batch", "timer") for kind in kinds)
    last_due = max((step.due_at or step.since for step in open_steps), default=_NEVER)
    return exact, kinds.count("timer"), last_due


def _as_ended(step: StepView) -> StepView:
    return replace(step, outcome="fired" if step.kind == "timer" else "completed")


def _losers(steps: Iterable[StepView]) -> set[str]:
    """Keys of those that lost a race which ended with the workflow; inner races come first."""
    races: dict[tuple[str, ...], dict[str, list[StepView]]] = {}
    for step in steps:
        names = tuple(step.key.split("/"))
        for depth in range(1, len(names)):
            if names[depth - 1].partition("#")[0] == _RACE:
                branches = races.setdefault(names[:depth], {})
                branches.setdefault(names[depth], []).append(step)
    losers: set[str] = set()
    for race in sorted(races, key=len, reverse=True):
        in_race = [
            [step for step in branch if step.key not in losers] for branch in races[race].values()
        ]
        winner = min(filter(None, in_race), key=_end_of_branch)
        losers.update(step.key for branch in in_race if branch is not winner for step in branch)
    return losers


def _end_of_branch(branch: Sequence[StepView]) -> tuple[bool, datetime]:
    """Orders branches of a race by their ends, those last that have none."""
    failures = [_ended_at(step) for step in branch if step.outcome in _FAILED]
    if failures:
        return False, min(failures)
    return any(step.outcome == "given-up" for step in branch), max(map(_ended_at, branch))


def _ended_at(step: StepView) -> datetime:
    return step.ended_at or step.since


# --- causes ---------------------------------------------------------------------------------------
def with_causes(steps: Sequence[StepView], memo: WorkflowMemo) -> list[StepView]:
    """The steps, each with the key of the one whose end let it begin.

    Args:
        steps: with their ends.
        memo: that they were read from.
    """
    after = dict(_causes({step.key: step for step in steps}, memo))
    return [replace(step, after=after.get(step.key, "")) for step in steps]


def _causes(steps: Mapping[str, StepView], memo: WorkflowMemo) -> Iterator[tuple[str, str]]:
    scheduled: dict[str, int] = {}
    noted: list[str] = []
    given_up: set[int] = set()
    is_same_advance = False
    for entry in memo.entries:
        if not is_same_advance:
            noted = []
        given_up.update(entry.cancelled)
        lost = {key for key, n in scheduled.items() if n in given_up}
        for end in entry.consumed:
            if end.key == CANCEL_KEY:
                noted += _interrupted(steps, memo, entry, scheduled)
                continue
            if end.key not in scheduled:
                yield end.key, _cause(end.key, noted, steps, lost)
            noted.append(end.key)
        if entry.inline is not None:
            yield entry.inline.key, _cause(entry.inline.key, noted, steps, lost)
            noted.append(entry.inline.key)
        for step in entry.scheduled:
            yield step.key, _cause(step.key, noted, steps, lost)
        scheduled |= {step.key: step.n for step in entry.scheduled}
        is_same_advance = entry.is_part or entry.inline is not None


def _interrupted(
    steps: Mapping[str, StepView],
    memo: WorkflowMemo,
    cancelled_in: MemoEntry,
    scheduled: Mapping[str, int],
) -> list[str]:
    """What a workflow waited for when it was cancelled, the one last that it waited for longest."""
    before = memo.entries[: memo.entries.index(cancelled_in)]
    over = {end.key for entry in before for end in entry.consumed}
    over_numbers = {n for entry in before for n in entry.cancelled}
    waited = [
        steps[key]
        for key, n in scheduled.items()
        if key in steps and key not in over and n not in over_numbers
    ]
    return [step.key for step in sorted(waited, key=lambda step: step.since, reverse=True)]


def _cause(
    key: str, noted: Iterable[str], steps: Mapping[str, StepView], lost: Iterable[str]
) -> str:
    """Of the ends that were noted before a step began, the one that let it begin.

    That is the last one in the same scope: what ran beside it may have ended in the same advance.
    The loser of a race counts only where its end was waited for.
    """
    scopes = key.split("/")[:-1]
    best, best_rank = "", None
    for cause in noted:
        if cause not in steps:
            continue
        pairs = zip(scopes, cause.split("/")[:-1], strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        rank = (cause not in lost, shared, _ended_at(steps[cause]))
        if best_rank is None or rank >= best_rank:
            best, best_rank = cause, rank
    return best
