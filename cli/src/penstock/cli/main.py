"""The entry point `penstock`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from penstock.cli.command import Lazy, LazyGroup
from penstock.runtime.interpreter import PAUSING, working_directory_last

RUN, LOOK, CHECK = "Run", "Look and act", "Check"
COMMANDS = {
    "up": Lazy("penstock.cli.up.command:up", "Everything on this machine, with a live table.", RUN),
    "metrics": Lazy("penstock.cli.service:metrics", "Run the metrics service.", RUN),
    "decider": Lazy("penstock.cli.service:decider", "Run the decider.", RUN),
    "executor": Lazy("penstock.cli.service:executor", "Run this host's executor.", RUN),
    "orchestrator": Lazy("penstock.cli.service:orchestrator", "Run the orchestrator.", RUN),
    "pipeline": Lazy(
        "penstock.cli.pipeline.command:pipeline", "The event log as a lake, by Spark.", RUN
    ),
    "worker": Lazy(
        "penstock.cli.scaling.worker:worker", "Run one job worker, or list workers.", RUN
    ),
    "job": Lazy("penstock.cli.jobs.job:job", "Submit, list, show, cancel and retry jobs.", LOOK),
    "dead": Lazy("penstock.cli.jobs.dead:dead", "Dead letters: list, retry, delete.", LOOK),
    "batch": Lazy("penstock.cli.jobs.batch:batch", "Batches of jobs: watch, cancel, retry.", LOOK),
    "graph": Lazy(
        "penstock.cli.jobs.graph:graph", "Chains and graphs: show, continue, cancel.", LOOK
    ),
    "recover": Lazy("penstock.cli.jobs.recover:recover", "Stuck jobs: show and recover.", LOOK),
    "queue": Lazy("penstock.cli.jobs.queue:queue", "Queues: depth, running, delayed, age.", LOOK),
    "outbox": Lazy("penstock.cli.jobs.outbox:outbox", "Jobs kept locally without a broker.", LOOK),
    "schedule": Lazy("penstock.cli.jobs.schedule:schedule", "Jobs at set times: cron.", LOOK),
    "pool": Lazy("penstock.cli.scaling.pool:pool", "Pools: load, workers, promise.", LOOK),
    "decision": Lazy("penstock.cli.scaling.decision:decision", "Scaling decisions, and why.", LOOK),
    "events": Lazy("penstock.cli.events:events", "The event log and its schema.", LOOK),
    "health": Lazy(
        "penstock.cli.health:health", "State of the installation; what jobs survive.", CHECK
    ),
    "simulate": Lazy(
        "penstock.cli.scaling.simulate:simulate",
        "Strategies against recorded arrivals.",
        CHECK,
        needs="penstock-decider",
    ),
    "replay": Lazy(
        "penstock.cli.scaling.replay:replay",
        "Past decisions, recomputed and proved equal.",
        CHECK,
        needs="penstock-decider",
    ),
    "report": Lazy(
        "penstock.cli.pipeline.report:report", "Promises kept, cost, worst moments.", CHECK
    ),
    "tune": Lazy(
        "penstock.cli.scaling.tune:tune",
        "The best settings of each pool, by simulation.",
        CHECK,
        needs="penstock-decider",
    ),
    "deploy": Lazy(
        "penstock.cli.deploy.command:deploy", "Keys and certificates of an installation.", CHECK
    ),
    "config": Lazy("penstock.cli.config:config", "Check and show the settings in force.", CHECK),
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
            from penstock.telemetry.lines import printable  # noqa: PLC0415

            line, code = errors.explain(error)
            if line:
                click.echo(f"penstock: {printable(line)}", err=True)
        sys.exit(code if isinstance(code, int) else 0)


@click.command(
    cls=Penstock,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    example="penstock up\npenstock job submit reports.rebuild --arg table=orders --wait\n"
    "penstock decision explain reports",
)
@click.version_option(package_name="penstock-cli", message="%(prog)s %(version)s")
def cli() -> None:
    """Runs PySpark jobs from queues, with as many workers as the promises need."""


def main() -> NoReturn:
    """The console script; job modules in the working directory can be imported."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PAUSING)  # until a service handles them
    working_directory_last()
    cli.main(prog_name="penstock")


if __name__ == "__main__":
    main()
