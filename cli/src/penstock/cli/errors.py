"""The line and the exit code for any exception; the line names the next step.

2: the call or the settings are wrong, nothing was done. 1: it failed. 130: interrupted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

DEBUG_VARIABLE = "PENSTOCK_DEBUG"
"""`penstock.config.load` knows that it is no setting; written twice to keep `--help` quick."""
WRONG_USE, FAILED, INTERRUPTED = 2, 1, 130


class Refused(click.ClickException):
    """The call is wrong; nothing was done."""

    exit_code = WRONG_USE


class Failed(click.ClickException):
    """The command was carried out and failed."""

    exit_code = FAILED


def explain(error: BaseException) -> tuple[str, int]:
    """The line to print (empty: none) and the exit code."""
    if isinstance(error, click.Abort):
        return "interrupted", INTERRUPTED
    if isinstance(error, click.UsageError):
        return _usage(error), WRONG_USE
    if isinstance(error, click.ClickException):
        return _one_line(error.format_message()), error.exit_code
    return _explain_other(error)


def _explain_other(error: BaseException) -> tuple[str, int]:
    from penstock.bus.protocol import (  # noqa: PLC0415 - only when something failed
        BusUnavailable,
        NotLetIn,
    )
    from penstock.config import ConfigError  # noqa: PLC0415
    from penstock.events.subjects import BadName  # noqa: PLC0415
    from penstock.jobs.errors import (  # noqa: PLC0415
        BadArguments,
        BadSchedule,
        BadTime,
        PayloadTooLarge,
        UnknownJob,
    )

    text = _one_line(str(error))
    wrong_calls = BadName | BadArguments | BadSchedule | BadTime | PayloadTooLarge | UnknownJob
    if isinstance(error, ConfigError | wrong_calls):
        return text, WRONG_USE
    if isinstance(error, BusUnavailable) and not isinstance(error, NotLetIn):
        problem, _, _ = text.partition(";")
        return f"{problem}; {_way_to_a_broker()}", FAILED
    if type(error).__module__.startswith("penstock."):
        return text or type(error).__name__, FAILED
    return (
        f"{type(error).__name__}: {text} (set {DEBUG_VARIABLE}=1 to see where it comes from)",
        FAILED,
    )


def _way_to_a_broker() -> str:
    """The next step where no broker answers."""
    from penstock.runtime.local_broker import is_up  # noqa: PLC0415 - only when something failed

    if is_up():
        return "'penstock up' runs in this folder: see its output, and 'penstock health'"
    return "start one with 'penstock up', or give --nats-url"


def _usage(error: click.UsageError) -> str:
    where = error.ctx.command_path if error.ctx else "penstock"
    text = _one_line(error.format_message()).rstrip(".")
    text = text.replace(". Did you mean", "; did you mean").replace("No such", "no such")
    return f"{text}; see '{where} --help'"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def silence_output() -> None:
    """Drops further output after its reader went away (`| head`), which is no error."""
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
