"""Workflows as text: the columns of a list, and one with its steps as a tree."""

from __future__ import annotations

import re
import textwrap

import msgspec

from penstock.cli.output import Column
from penstock.cli.workflows.tree import tree
from penstock.telemetry.lines import one_line
from penstock.views import wording
from penstock.views.workflow_board import WorkflowDetail, WorkflowRow

_HELD = "\N{NO-BREAK SPACE}"
_UNBROKEN = re.compile(r"'penstock .*?'(?= |$|[.;,])|\([^()]*\)")
"""Commands, which are to be copied, and figures."""
_MOST_OF_PATH = 12
"""Steps of a critical path that are named, unless all are asked for."""


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
    Column("since", lambda row: wording.clock(row.waiting_since), rank=2),
    Column("advances", lambda row: str(row.advances), number=True, rank=3),
    Column("dispatched", lambda row: wording.clock(row.dispatched_at), rank=2),
    Column("status", status, rank=2, sentence=True),
    Column("note", _note, rank=2, sentence=True),
)


def description(detail: WorkflowDetail, most: int | None = None, width: int = 0) -> list[str]:
    """One workflow as lines of text.

    Args:
        detail: of the workflow.
        most: how many steps are drawn; None for all.
        width: of the terminal, which lines of steps are cut at, and sentences wrapped; 0: neither.
    """
    row = detail.workflow
    version = f" (version {row.version})" if row.version else ""
    values = "context" if row.kind == "declared" else "arguments"
    lines = [
        f"workflow   {row.id}",
        f"state      {row.state}",
        *_optional("function" if row.kind == "coded" else "name", f"{row.function}{version}"),
        *_optional("queue", row.queue),
        f"{values:<9}  {msgspec.json.encode(detail.arguments).decode()}",
        f"dispatched {wording.clock(row.dispatched_at)}",
        *_optional("ended", wording.clock(row.finished_at) if row.finished_at else ""),
        *_optional("paused", wording.clock(row.paused_at) if row.paused_at else ""),
        *_optional("status", status(row)),
        *_optional("trace", detail.trace_id),
        *_optional("reason" if row.state == "cancelled" else "error", wording.error(row.error)),
    ]
    if row.state == "completed" and row.kind == "coded":
        lines.append(f"result     {msgspec.json.encode(detail.result).decode()}")
    if detail.steps:
        drawn = tree(detail.steps, most, is_graph=row.kind == "declared")
        lines += ["steps", *(f"  {line}" for line in drawn)]
    lines = [_cut(line, width) for line in lines]
    if detail.critical_path:
        lines += ["critical path (*)", *_wrapped(_path(detail, most), width)]
    if detail.why:
        lines += ["why", *(line for text in detail.why for line in _wrapped(text, width))]
    return lines


def _path(detail: WorkflowDetail, most: int | None) -> str:
    seconds = {step.key: step.seconds for step in detail.steps}
    parts = [f"{key} ({wording.seconds(seconds[key])})" for key in detail.critical_path]
    if most is not None and len(parts) > _MOST_OF_PATH:
        ends = _MOST_OF_PATH // 2
        parts = [*parts[:ends], f"… {len(parts) - 2 * ends:,} more", *parts[-ends:]]
    return " → ".join(parts)


def _cut(line: str, width: int) -> str:
    line = one_line(line)
    return line if not width or len(line) <= width else f"{line[: width - 1]}…"


def _wrapped(text: str, width: int) -> list[str]:
    """Below a title; a word that is longer than a line, such as an id, is not broken."""
    if not width:
        return [f"  {text}"]
    lines = textwrap.wrap(
        _UNBROKEN.sub(lambda match: match[0].replace(" ", _HELD), one_line(text)),
        width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_HELD, " ") for line in lines]


def _optional(title: str, text: str) -> list[str]:
    return [f"{title:<10} {text}"] if text else []
