"""Whether the jobs that settings name exist and take what they would be given.

That is known once their modules are imported. Since these may do anything as they are imported, a
process of its own imports them, with a time limit; :func:`main` is that process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from penstock.config import Settings
from penstock.runtime.interpreter import module_command, working_directory_last

IMPORT_SECONDS = 60.0
"""How long the modules may take; a slower one delays every start of a worker, too."""
_MOST_TEXT = 500
_MOST_BYTES = 1_000_000
_NOTICE = {
    "hook": "x",
    "event_id": "x",
    "event": "JobDead",
    "at": "2026-01-01T00:00:00Z",
    "job_id": "x",
}
"""What the job of a hook is given, as `penstock.jobs.JobNotice` in plain values."""


class DeclaredJobs(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be imported, and the calls to try then.

    Attributes:
        calls: by dotted name of the table: registered name and arguments.
    """

    modules: tuple[str, ...]
    calls: dict[str, tuple[str, dict[str, Any]]] = {}


def faults(settings: Settings) -> list[str]:
    """One sentence for each module that cannot be imported, or else each call that would fail."""
    declared = DeclaredJobs(modules=settings.jobs.modules, calls=dict(_calls(settings)))
    if not declared.modules:
        return []
    try:
        child = subprocess.run(
            module_command("penstock.cli.declared_jobs"),
            input=msgspec.json.encode(declared),
            capture_output=True,
            timeout=IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"jobs.modules: {_named(declared)} took longer than {IMPORT_SECONDS:g} s to import"]
    try:
        return msgspec.json.decode(child.stdout[:_MOST_BYTES], type=list[str])
    except msgspec.MsgspecError:
        last = child.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:_MOST_TEXT]
        ended = f"the process that imported {_named(declared)} ended with {child.returncode}"
        return [f"jobs.modules: {ended}{': ' if last else ''}{last}"]


def _named(declared: DeclaredJobs) -> str:
    return ", ".join(declared.modules[:5]) + (", ..." if len(declared.modules) > 5 else "")


def _calls(settings: Settings) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    for name, hook in settings.hooks.items():
        if hook.job:
            yield f"hooks.{name}", (hook.job, {"notice": _NOTICE})
    for name, schedule in settings.schedules.items():
        yield f"schedules.{name}", (schedule.job, schedule.arguments)


def main() -> None:
    """Reads `DeclaredJobs` from standard input and writes the faults to standard output."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # modules may print as they are imported
    declared = msgspec.json.decode(sys.stdin.buffer.read(), type=DeclaredJobs)
    working_directory_last()
    refusals = list(_not_imported(declared.modules)) or list(_not_callable(declared.calls))
    with answer:
        answer.write(msgspec.json.encode(refusals))
        answer.flush()
        os._exit(0)  # threads that a module started do not delay the answer


def _not_imported(modules: tuple[str, ...]) -> Iterator[str]:
    from penstock.jobs import registry  # noqa: PLC0415 - keeps `--help` quick

    for module in modules:
        try:
            registry.load([module])
        except BaseException as error:  # also SystemExit
            text = "".join(traceback.format_exception_only(error)).strip()
            yield f"jobs.modules: {module!r} cannot be imported: {text[:_MOST_TEXT]}"


def _not_callable(calls: Mapping[str, tuple[str, dict[str, Any]]]) -> Iterator[str]:
    from penstock.jobs import registry  # noqa: PLC0415
    from penstock.jobs.errors import JobsError  # noqa: PLC0415

    for table, (name, arguments) in calls.items():
        try:
            registry.find(name)(**arguments)
        except (JobsError, TypeError, ValueError) as error:
            yield f"{table}: {str(error)[:_MOST_TEXT]}"


if __name__ == "__main__":
    main()
