"""The steps of a workflow as a tree of lines: coded ones by their scopes, graphs by their needs.

A step stands below the one that it comes after, at the same depth where nothing runs beside it.
What runs beside something else is a branch; steps that need several branches follow below these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.views import wording
from penstock.views.workflow_board import StepRow

MOST_LINES = 60
_MOST_NAMED = 3
_FAILED = frozenset({"failed", "dead", "cancelled", "blocked", "timed-out"})


class _Line(NamedTuple):
    """A line: what stands before its facts, and the step that it is of; None for a scope."""

    label: str
    step: StepRow | None
    after: str = ""


def tree(steps: Sequence[StepRow], most: int | None = None, *, is_graph: bool = False) -> list[str]:
    """The steps, one a line, in their order.

    Args:
        steps: of one workflow.
        is_graph: whether they are drawn by what they need, else by their scopes.
        most: how many are drawn: those that failed, that have not ended and that are critical come
            first, and lines in between say how many are left out; None for all.
    """
    drawn = list(_graph(steps) if is_graph else _scopes(steps))
    width = max(len(line.label) for line in drawn)
    chosen = _chosen(steps, most)
    return list(_lines(drawn, width, chosen))


def _lines(drawn: Sequence[_Line], width: int, chosen: frozenset[str]) -> Iterator[str]:
    left_out: list[StepRow] = []
    for place, line in enumerate(drawn):
        if line.step is None:
            below = _below(drawn, place)
            if any(step.key in chosen for step in below):
                yield from _summary(left_out)
                yield line.label
        elif line.step.key in chosen:
            yield from _summary(left_out)
            yield f"{line.label:<{width}}  {_facts(line.step, line.after)}".rstrip()
        else:
            left_out.append(line.step)
    yield from _summary(left_out)


def _below(drawn: Sequence[_Line], place: int) -> Iterator[StepRow]:
    """The steps in the scope that a line is of."""
    depth = _depth(drawn[place].label)
    for line in drawn[place + 1 :]:
        if _depth(line.label) <= depth:
            return
        if line.step is not None:
            yield line.step


def _depth(label: str) -> int:
    return len(label) - len(label.lstrip("│├└─ "))


def _summary(left_out: list[StepRow]) -> Iterator[str]:
    """``… 180 more: 178 completed, 2 skipped``; then there are none."""
    if left_out:
        states = Counter(step.state for step in left_out)
        yield f"… {len(left_out):,} more: " + ", ".join(f"{n:,} {s}" for s, n in states.items())
        left_out.clear()


def _chosen(steps: Sequence[StepRow], most: int | None) -> frozenset[str]:
    if most is None or len(steps) <= most:
        return frozenset(step.key for step in steps)

    def rank(place: int) -> tuple[int, int]:
        step = steps[place]
        if step.state in _FAILED:
            return 0, place
        if step.since is not None and step.ended_at is None:
            return 1, place
        return (2 if step.critical else 3), place

    places = sorted(range(len(steps)), key=rank)[:most]
    return frozenset(steps[place].key for place in places)


# --- coded workflows ------------------------------------------------------------------------------
def _scopes(steps: Iterable[StepRow]) -> Iterator[_Line]:
    children: dict[str, list[str]] = {"": []}
    by_key = {step.key: step for step in steps}
    for key in by_key:
        path = ""
        for name in key.split("/"):
            parent, path = path, f"{path}/{name}" if path else name
            if path not in children:
                children[path] = []
                children[parent].append(path)
    yield from _scope(children, by_key, "", "")


def _scope(
    children: Mapping[str, list[str]], by_key: Mapping[str, StepRow], path: str, indent: str
) -> Iterator[_Line]:
    for key in children[path]:
        is_last = key == children[path][-1]
        branch, below = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        yield _Line(f"{indent}{branch}{key.rpartition('/')[2]}", by_key.get(key))
        yield from _scope(children, by_key, key, indent + below)


# --- graphs ---------------------------------------------------------------------------------------
def _graph(steps: Sequence[StepRow]) -> Iterator[_Line]:
    shown = [step for step in steps if not _is_idle_undoing(step)]
    by_key = {step.key: step for step in shown}
    parents = _dominators(shown)
    children: dict[str, list[str]] = {"": [], **{key: [] for key in by_key}}
    for key, parent in parents.items():
        children[parent].append(key)
    # Drawn with a stack of its own: a chain may be longer than the interpreter's.
    stack = [("", "", "", "")]
    while stack:
        key, lead, indent, above = stack.pop()
        if key:
            step = by_key[key]
            yield _Line(f"{lead}{key}", step, _after(step, above))
        branches, following = _parted(children[key], by_key)
        entries = []
        for place, branch in enumerate(branches):
            is_last = place == len(branches) - 1
            own = indent + ("   " if is_last else "│  ")
            entries.append((branch, f"{indent}{'└─ ' if is_last else '├─ '}", own, key))
        if following:
            entries.append((following, indent, indent, key if not branches else ""))
        stack.extend(reversed(entries))


def _is_idle_undoing(step: StepRow) -> bool:
    """Whether it undoes another one, and did not have to."""
    return step.runs.startswith("undoes ") and step.since is None


def _dominators(steps: Sequence[StepRow]) -> dict[str, str]:
    """The last step that all ways to each step lead through; empty where there is none."""
    parents: dict[str, str] = {}
    depths = {"": 0}
    for step in steps:
        needs = [need for need in step.needs if need in depths]
        parent = needs[0] if needs else ""
        for need in needs[1:]:
            other = need
            while parent != other:
                if depths[parent] >= depths[other]:
                    parent = parents[parent]
                else:
                    other = parents[other]
        parents[step.key], depths[step.key] = parent, depths[parent] + 1
    return parents


def _parted(keys: Sequence[str], by_key: Mapping[str, StepRow]) -> tuple[Sequence[str], str]:
    """Those that run beside each other, and the one that follows on them, if one does."""
    if len(keys) == 1:
        return (), keys[0]
    if keys and len(by_key[keys[-1]].needs) > 1:
        return keys[:-1], keys[-1]
    return keys, ""


def _after(step: StepRow, above: str) -> str:
    """What it needs, unless that is the step above it alone."""
    if not step.needs or tuple(step.needs) == (above,):
        return ""
    rest = len(step.needs) - _MOST_NAMED
    return f"after {', '.join(step.needs[:_MOST_NAMED])}" + (f" and {rest} more" * (rest > 0))


# --- the facts of a step --------------------------------------------------------------------------
def _facts(step: StepRow, after: str) -> str:
    tried = f"{step.attempts} attempts" if step.attempts > 1 else ""
    due = f"until {wording.clock(step.due_at)}" if step.due_at and not step.ended_at else ""
    length = f"+{wording.seconds(step.seconds)}{_split(step)}"
    began = f"{wording.clock(step.since)} {length}" if step.since else ""
    parts = (
        step.kind,
        began,
        tried,
        due,
        after,
        step.runs,
        wording.error(step.error),
        step.job_id if step.since else "",
    )
    mark = "*" if step.critical else " "
    return f"{mark} {step.state:<10} {'  '.join(part for part in parts if part)}"


def _split(step: StepRow) -> str:
    """`` (waited 51 s, ran 3 s)``: of its job's last attempt; empty where that is not known."""
    named = (("waited", step.waited_seconds), ("ran", step.ran_seconds))
    parts = [f"{name} {wording.seconds(value)}" for name, value in named if value is not None]
    return f" ({', '.join(parts)})" if parts else ""
