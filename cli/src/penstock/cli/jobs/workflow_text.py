"""Workflows as text: the columns of a list, and one with its steps as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from penstock.cli.output import Column
from penstock.views import wording
from penstock.views.workflow_board import StepRow, WorkflowDetail, WorkflowRow


def status(row: WorkflowRow) -> str:
    """``stage=packed parcels=2``: what a workflow shows of itself."""
    shown = {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in row.status.items()
    }
    return " ".join(f"{name}={value}" for name, value in shown.items())


def _note(row: WorkflowRow) -> str:
    return row.pause_reason or row.blocked or wording.error(row.error)


COLUMNS = (
    Column("id", lambda row: row.id),
    Column("state", lambda row: row.state, rank=1),
    Column("function", lambda row: row.function, rank=1, sentence=True),
    Column("waits for", lambda row: row.waits_for, rank=1, sentence=True),
    Column("since", lambda row: wording.clock(row.waiting_since), rank=1),
    Column("advances", lambda row: str(row.advances), number=True, rank=3),
    Column("dispatched", lambda row: wording.clock(row.dispatched_at), rank=2),
    Column("status", status, rank=2, sentence=True),
    Column("note", _note, rank=2, sentence=True),
)


def description(detail: WorkflowDetail) -> list[str]:
    """One workflow as lines of text."""
    row = detail.workflow
    version = f" (version {row.version})" if row.version else ""
    lines = [
        f"workflow   {row.id}",
        f"state      {row.state}",
        f"function   {row.function}{version}",
        f"queue      {row.queue}",
        f"arguments  {msgspec.json.encode(detail.arguments).decode()}",
        f"dispatched {wording.clock(row.dispatched_at)}",
        *_optional("ended", wording.clock(row.finished_at) if row.finished_at else ""),
        *_optional("paused", wording.clock(row.paused_at) if row.paused_at else ""),
        *_optional("status", status(row)),
        *_optional("trace", detail.trace_id),
        *_optional("error", wording.error(row.error)),
    ]
    if row.state == "completed":
        lines.append(f"result     {msgspec.json.encode(detail.result).decode()}")
    if detail.steps:
        lines += ["steps", *(f"  {line}" for line in tree(detail.steps))]
    if detail.critical_path:
        seconds = {step.key: step.seconds for step in detail.steps}
        parts = [f"{key} ({wording.seconds(seconds[key])})" for key in detail.critical_path]
        lines += ["critical path (*)", f"  {' → '.join(parts)}"]
    if detail.why:
        lines += ["why", *(f"  {sentence}" for sentence in detail.why)]
    return lines


def tree(steps: Sequence[StepRow]) -> list[str]:
    """The steps below their scopes, one a line, in the order of their recording."""
    scopes: dict[str, list[str]] = {"": []}
    by_key = {step.key: step for step in steps}
    for step in steps:
        path = ""
        for name in step.key.split("/"):
            parent, path = path, f"{path}/{name}" if path else name
            if path not in scopes:
                scopes[path] = []
                scopes[parent].append(path)
    drawn = list(_drawn(scopes, "", ""))
    width = max(len(label) for label, _ in drawn)
    return [f"{label:<{width}}  {_facts(by_key.get(key))}".rstrip() for label, key in drawn]


def _drawn(scopes: dict[str, list[str]], path: str, indent: str) -> Iterator[tuple[str, str]]:
    """Each name with the lines that lead to it, and its key."""
    below = scopes[path]
    for key in below:
        is_last = key == below[-1]
        yield f"{indent}{'└─' if is_last else '├─'} {key.rpartition('/')[2]}", key
        yield from _drawn(scopes, key, indent + ("   " if is_last else "│  "))


def _facts(step: StepRow | None) -> str:
    if step is None:
        return ""
    tried = f"{step.attempts} attempts" if step.attempts > 1 else ""
    due = f"until {wording.clock(step.due_at)}" if step.due_at and not step.ended_at else ""
    parts = (
        step.kind,
        f"{wording.clock(step.since)} +{wording.seconds(step.seconds)}",
        tried,
        due,
        step.job_id,
        wording.error(step.error),
    )
    mark = "*" if step.critical else " "
    return f"{mark} {step.state:<10} {'  '.join(part for part in parts if part)}"


def _optional(title: str, text: str) -> list[str]:
    return [f"{title:<9}  {text}"] if text else []
