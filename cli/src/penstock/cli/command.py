"""The form of every command of `penstock`: an example in its help, global options anywhere."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import click

from penstock.cli.installed import required
from penstock.cli.session import Session
from penstock.runtime.interpreter import HELD_BACK


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Keeps a global option in the session; the one given last wins."""
    if value is not None and option.name is not None:
        setattr(context.ensure_object(Session), option.name, value)


def _global_options() -> list[click.Parameter]:
    """The options that may stand before or after any command's name."""
    options: tuple[tuple[list[str], dict[str, Any]], ...] = (
        (
            ["--config", "config_file"],
            {"metavar": "FILE", "help": "Settings file; else PENSTOCK_CONFIG, else penstock.toml."},
        ),
        (
            ["--nats-url"],
            {"metavar": "URL", "help": "Broker; else nats.url, else that of 'penstock up' here."},
        ),
        (["--json", "as_json"], {"flag_value": True, "help": "Print JSON instead of tables."}),
        (
            ["--wide"],
            {
                "flag_value": True,
                "help": "Print tables whole, however narrow the terminal.",
            },
        ),
        (
            ["--log-level"],
            {
                "type": click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
                "metavar": "LEVEL",
                "help": "Show log lines from debug, info, warning or error upwards.",
            },
        ),
        (["--log-json"], {"flag_value": True, "help": "Log one JSON object a line."}),
    )
    silent: dict[str, Any] = {"default": None, "expose_value": False, "callback": _remember}
    return [click.Option(names, **silent, **rest) for names, rest in options]


GLOBAL_OPTIONS = _global_options()
_WHOLE = 1_000
"""Characters that no sentence of a help has."""


class Command(click.Command):
    """A command with an example, the global options, and one-line errors.

    One that ``computes`` has child processes and temporary files, which SIGTERM ends, too.
    """

    def __init__(
        self,
        *args: Any,
        example: str = "",
        service: bool = False,
        computes: bool = False,
        **keywords: Any,
    ) -> None:
        super().__init__(*args, **keywords)
        self.example = example
        self.service = service
        self.computes = computes

    def invoke(self, ctx: click.Context) -> Any:
        if not (self.service or isinstance(self, click.Group)):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
        ctx.ensure_object(Session).start_logging(self.service)
        if not self.computes:
            return super().invoke(ctx)
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as by Ctrl-C
        try:
            return super().invoke(ctx)
        finally:
            signal.signal(signal.SIGTERM, before)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *GLOBAL_OPTIONS]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(super().get_params(ctx), ctx, formatter)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.example:
            with formatter.section("Example"):
                for line in self.example.splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def _write_options(
    own: list[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    for title, options in (("Options", own), ("Global options", GLOBAL_OPTIONS)):
        records = [record for option in options if (record := option.get_help_record(ctx))]
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class Group(Command, click.Group):
    """A noun with its verbs."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The whole first sentence of each: what does not fit a line is continued, not cut."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, one.get_short_help_str(_WHOLE)) for name, one in commands if one is not None]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class Lazy(NamedTuple):
    """A command that is imported when it is used.

    Attributes:
        module: below `penstock.cli`; its attribute of the command's name is the command.
        help: its line in the list of commands.
        section: its heading in that list.
        needs: the distribution that its module imports, where that may be missing.
    """

    module: str
    help: str
    section: str
    needs: str = ""


class LazyGroup(Group):
    """A group whose commands are imported one at a time, so that `--help` is quick."""

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy], **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (entry := self.lazy.get(cmd_name)) is None:
            return None
        with required(entry.needs) if entry.needs else nullcontext():
            command: click.Command = getattr(
                importlib.import_module(f"penstock.cli.{entry.module}"), cmd_name
            )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.lazy.items():
            sections.setdefault(entry.section, []).append((name, entry.help))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)
