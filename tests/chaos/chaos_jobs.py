"""Jobs that tell of their runs: which job, under which token, when, by a clock all share."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from tests.histories import Run
from tests.holding import hold_interpreter
from tests.programs import program as programs

from penstock.jobs import Call, Context, WorkflowContext, job, workflow

QUEUE, VAULT = "work", "vault"
_STEP_SECONDS = 0.005
_SOON = [0.05, 0.2]


def mark(context: Context, witness: str) -> None:
    """One line, whole, whoever else writes."""
    line = f"{context.job_id} {context.fencing_token} {time.monotonic()}\n"
    file = os.open(witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def runs(witness: Path) -> list[Run]:
    """What all runs told."""
    seen: dict[tuple[str, int], list[float]] = {}
    for job_id, token, at in _lines(witness):
        seen.setdefault((job_id, int(token)), []).append(float(at))
    return [Run(job_id, token, min(at), max(at)) for (job_id, token), at in seen.items()]


def _lines(witness: Path) -> Iterator[tuple[str, str, str]]:
    if witness.exists():
        for line in witness.read_text("utf-8").splitlines():
            job_id, token, at = line.split()
            yield job_id, token, at


@job(queue=QUEUE)
def touch(context: Context, witness: str) -> int:
    mark(context, witness)
    return context.fencing_token


@job(queue=QUEUE)
def compute(context: Context, witness: str, seconds: float) -> int:
    """Burns CPU, never sleeps."""
    mark(context, witness)
    until, turns = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        turns += 1
    mark(context, witness)
    return turns


@job(queue=QUEUE)
def compute_in_c(context: Context, witness: str, seconds: float) -> None:
    """Holds the interpreter: no other thread of its process runs."""
    mark(context, witness)
    hold_interpreter(seconds)
    mark(context, witness)


@job(queue=QUEUE, tries=3, backoff=_SOON)
def fail(context: Context, witness: str, times: int) -> int:
    mark(context, witness)
    if context.attempt <= times:
        raise RuntimeError(f"attempt {context.attempt} is too early")
    return context.attempt


@job(queue=VAULT)
def occupy(context: Context, witness: str, seconds: float, stubborn: bool) -> None:
    """If ``stubborn``, only the end of its process stops it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            mark(context, witness)
            time.sleep(_STEP_SECONDS)
        except BaseException:
            if not stubborn:
                raise


@job(queue=QUEUE, tries=2, backoff=_SOON)
def leaf(context: Context, witness: str, number: int, seconds: float, failures: int) -> int:
    """A job of a random workflow."""
    mark(context, witness)
    time.sleep(seconds)
    if context.attempt <= failures:
        raise RuntimeError(f"attempt {context.attempt}")
    return number


@workflow(queue=QUEUE)
async def follow(ctx: WorkflowContext, witness: str, program: Any) -> Any:
    """Runs a random program, see `tests.programs`."""

    def call(run: programs.Run) -> Call:
        return leaf(witness, run.number, run.seconds, run.failures)

    def sub(part: programs.Program) -> Call:
        return follow(witness, msgspec.to_builtins(part))

    def is_mended(workflow_id: str) -> bool:
        return mended_file(Path(witness), workflow_id).exists()

    return await programs.interpret(ctx, programs.read(program), call, sub, is_mended)


def mended_file(witness: Path, workflow_id: str) -> Path:
    """Is there once the code of a workflow no longer breaks."""
    return witness.with_name(f"mended-{workflow_id}")
