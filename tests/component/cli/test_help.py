"""`--help` is there for every command, has an example, and is quick."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from penstock.cli.command import LazyGroup
from penstock.cli.main import cli


def commands(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found
            yield from commands(found, (*path, name))


ALL = dict(commands())


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_explains_itself_with_an_example(penstock, path) -> None:
    shown = penstock(*path, "--help")
    assert shown.exit_code == 0
    assert "Example:\n  penstock " in shown.output
    assert "--json" in shown.output
    assert ALL[path].help


def test_the_list_of_commands_says_what_the_commands_are() -> None:
    assert isinstance(cli, LazyGroup)
    for name in cli.lazy:
        command = ALL[(name,)]
        assert command.name == name


def test_examples_call_commands_that_exist() -> None:
    for path, command in ALL.items():
        for line in command.example.splitlines():
            words = line.split()
            assert words[0] == "penstock"
            assert tuple(words[1 : len(path) + 1]) == path


def test_help_imports_nothing_heavy() -> None:
    look = (
        "import sys\nfrom penstock.cli.main import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'nats', 'rich', 'msgspec', 'asyncio', 'opentelemetry', 'numpy', 'pyspark'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "[]"


def test_no_verb_is_described_by_half_a_sentence(penstock) -> None:
    for group in ("workflow", "job", "batch", "graph", "dead", "schedule"):
        text = penstock(group, "--help").output
        commands = text.partition("Commands:")[2].partition("Global options:")[0]
        assert commands.strip(), text
        assert "...\n" not in commands
