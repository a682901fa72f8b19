"""Makes cli.md of the commands; used by generate.py."""

from __future__ import annotations

import inspect

import click
from tables import table

from penstock.cli.command import GLOBAL_OPTIONS, Command, LazyGroup
from penstock.cli.main import cli

CLI_INTRODUCTION = """
# The command `penstock`

Exit code 0: done. 1: it was tried and failed. 2: the call or the settings are wrong, nothing was
done. 130: interrupted. Errors are one line on standard error; `PENSTOCK_DEBUG=1` shows where they
come from. With `--json`, lists are printed as a JSON list of objects, single things as one object.
A table on a terminal has the columns that fit, and a line below it counts the hidden ones; with
`--wide`, and where the output is no terminal, it has all of them, uncut.

Global options, before or after any command:
"""


def cli_page() -> str:
    context = click.Context(cli, info_name="penstock")
    parts = [CLI_INTRODUCTION.strip(), option_table(GLOBAL_OPTIONS, context)]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command
        parts += command_parts(command, click.Context(command, context, name))
    return "\n\n".join(part for part in parts if part)


def command_parts(command: click.Command, context: click.Context) -> list[str]:
    usage = context.command.collect_usage_pieces(context)
    level = "#" * (context.command_path.count(" ") + 1)
    parts = [
        f"{level} {context.command_path}",
        inspect.cleandoc(command.help or ""),
        f"```\n{context.command_path} {' '.join(usage)}\n```",
        option_table(command.params, context),
    ]
    if isinstance(command, Command) and command.example:
        parts.append(f"Example:\n\n```console\n{command.example}\n```")
    if isinstance(command, click.Group) and not isinstance(command, LazyGroup):
        for name, verb in command.commands.items():
            parts += command_parts(verb, click.Context(verb, context, name))
    return parts


def option_table(options: list[click.Parameter], context: click.Context) -> str:
    named = [option for option in options if isinstance(option, click.Option)]
    records = [record for option in named if (record := option.get_help_record(context))]
    return table(["option", "meaning"], [[f"`{name}`", text] for name, text in records])
