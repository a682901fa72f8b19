"""The entry point `penstock`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from penstock.cli.command import Lazy, LazyGroup
from penstock.runtime.interpreter import HELD_BACK, working_directory_last

RUN, LOOK, CHECK = "Run", "Look and act", "Check"
COMMANDS = {
    "init": Lazy("project.command", "Make the files of a new project.", RUN),
    "up": Lazy("up.command", "Everything on this machine, with a live table.", RUN),
    "metrics": Lazy("service", "Run the metrics service.", RUN),
    "decider": Lazy("service", "Run the decider.", RUN),
    "executor": Lazy("service", "Run this host's executor.", RUN),
    "orchestrator": Lazy("service", "Run the orchestrator.", RUN),
    "console": Lazy("service", "Run the console: web pages and an HTTP API.", RUN),
    "scaler": Lazy("service", "Run the external scaler for KEDA.", RUN),
    "pipeline": Lazy("pipeline.command", "The event log as a lake, by Spark.", RUN),
    "worker": Lazy("scaling.worker", "Run one job worker, or list workers.", RUN),
    "job": Lazy("jobs.job", "Submit, list, show, cancel and retry jobs.", LOOK),
    "dead": Lazy("jobs.dead", "Dead letters: list, retry, delete.", LOOK),
    "batch": Lazy("jobs.batch", "Batches of jobs: watch, cancel, retry.", LOOK),
    "graph": Lazy("workflows.graph", "Chains and graphs: show, continue, cancel.", LOOK),
    "workflow": Lazy("workflows.command", "Workflows: run, show, why, signal, define.", LOOK),
    "recover": Lazy("jobs.recover", "Stuck jobs: show and recover.", LOOK),
    "reload": Lazy("scaling.reload", "New job code: import it, replace workers.", LOOK),
    "queue": Lazy("jobs.queue", "Queues: depth, running, delayed, age.", LOOK),
    "outbox": Lazy("jobs.outbox", "Jobs kept locally without a broker.", LOOK),
    "schedule": Lazy("jobs.schedule", "Cron schedules: list, add, pause, run now.", LOOK),
    "pool": Lazy("scaling.pool", "Pools: load, workers, promise.", LOOK),
    "host": Lazy("scaling.host", "Hosts: list, pause, drain, resume.", LOOK),
    "decision": Lazy("scaling.decision", "Scaling decisions, and why.", LOOK),
    "events": Lazy("events", "The event log and its schema.", LOOK),
    "health": Lazy("health", "State of the installation; what jobs survive.", CHECK),
    "simulate": Lazy(
        "scaling.simulate",
        "Strategies against recorded arrivals.",
        CHECK,
        needs="penstock-decider",
    ),
    "replay": Lazy(
        "scaling.replay",
        "Past decisions, recomputed and proved equal.",
        CHECK,
        needs="penstock-decider",
    ),
    "verify": Lazy("verify.command", "The promises, checked in the event log.", CHECK),
    "report": Lazy("pipeline.report", "Promises kept, cost, worst moments.", CHECK),
    "tune": Lazy(
        "scaling.tune",
        "The best settings of each pool, by simulation.",
        CHECK,
        needs="penstock-decider",
    ),
    "api": Lazy("api.command", "The console: tokens, accounts, audit log, rows.", CHECK),
    "deploy": Lazy("deploy.command", "Keys and certificates of an installation.", CHECK),
    "config": Lazy("config", "Check and show the settings in force.", CHECK),
}


class Penstock(LazyGroup):
    """The root: every error leaves as one line, with an exit code that scripts can distinguish."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            from penstock.cli.errors import silence_output  # noqa: PLC0415

            return silence_output()

    def main(  # type: ignore[override]  # never returns, whatever the mode
        self, args: Sequence[str] | None = None, **keywords: Any
    ) -> NoReturn:
        from penstock.cli import errors  # noqa: PLC0415 - keeps `--help` quick

        keywords["standalone_mode"] = False
        try:
            code = super().main(args, **keywords)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            code = errors.WRONG_USE
        except Exception as error:
            if os.environ.get(errors.DEBUG_VARIABLE) and not isinstance(error, click.Abort):
                raise
            from penstock.cli.output import note  # noqa: PLC0415

            line, code = errors.explain(error)
            if line:
                note(f"penstock: {line}")
        sys.exit(code if isinstance(code, int) else 0)


@click.command(
    cls=Penstock,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    example="penstock init shop\npenstock up\n"
    "penstock job submit reports.rebuild --arg table=orders --wait\n"
    "penstock decision explain reports",
)
@click.version_option(package_name="penstock-cli", message="%(prog)s %(version)s")
def cli() -> None:
    """Runs PySpark jobs from queues, with as many workers as the promises need."""


def main() -> NoReturn:
    """The console script; job modules in the working directory can be imported."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)  # until a service handles them
    working_directory_last()
    cli.main(prog_name="penstock")


if __name__ == "__main__":
    main()
