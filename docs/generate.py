"""Writes the generated pages of this folder, and parts of pages, from the code.

python docs/generate.py            writes events.md, settings.md, cli.md, telemetry.md, parts of
                                   strategies.md and policies.md
python docs/generate.py --check    compares; exit code 1 and a summary when one is out of date
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import NODEFAULT, Meta, UnsetType
from telemetry_page import telemetry_page

from penstock.cli.catalogue import ALL, entry
from penstock.cli.command import GLOBAL_OPTIONS, Command, LazyGroup
from penstock.cli.main import cli
from penstock.config import profiles
from penstock.config import settings as declared
from penstock.decider.core import options
from penstock.decider.core.lint.check import RULES
from penstock.decider.core.policies.shipped import SHIPPED
from penstock.decider.core.registry import BUILTIN
from penstock.events.envelope import Event
from penstock.events.subjects import Subjects

HERE = Path(__file__).parent
NOTE = "<!-- Made by docs/generate.py from the code; `make docs` writes it anew. -->"
NOTE_END = "<!-- Written by hand from here on. -->"
COMPUTED = "computed"
NO_LIMIT = 1e9
"""Limits from here on only keep infinity out; they are not worth a word."""


def main(arguments: list[str]) -> int:
    pages = {"events.md": events_page, "settings.md": settings_page, "cli.md": cli_page}
    pages["telemetry.md"] = partial(telemetry_page, table)
    texts = {HERE / name: f"{NOTE}\n{make().strip()}\n" for name, make in pages.items()}
    parts = {"strategies.md": strategies_part, "policies.md": policies_part}
    texts |= {HERE / name: with_part(HERE / name, make()) for name, make in parts.items()}
    if arguments == ["--check"]:
        return check(texts)
    if arguments:
        print(f"found {arguments}, expected nothing or --check", file=sys.stderr)
        return 2
    for path, text in texts.items():
        path.write_text(text, "utf-8")
    return 0


def with_part(page: Path, made: str) -> str:
    """A page that people write, with what is made from the code between its two marks."""
    before, _, rest = page.read_text("utf-8").partition(f"{NOTE}\n")
    _, end, after = rest.partition(f"{NOTE_END}\n")
    if not end:
        raise SystemExit(f"{page}: found no {NOTE!r} with {NOTE_END!r} below it")
    return f"{before}{NOTE}\n\n{made.strip()}\n\n{NOTE_END}\n{after}"


def check(texts: dict[Path, str]) -> int:
    """Compares each page with what would be written; says what differs."""
    stale = 0
    for path, text in texts.items():
        found = path.read_text("utf-8") if path.is_file() else ""
        if found != text:
            stale += 1
            print(f"docs/{path.name} is out of date; run: make docs")
            changes = difflib.unified_diff(
                found.splitlines(), text.splitlines(), "written", "declared", lineterm="", n=0
            )
            for line in list(changes)[2:14]:
                print(f"    {line[:140]}")
    return 1 if stale else 0


# --- events ---------------------------------------------------------------------------------------
ENVELOPE_INTRODUCTION = """
# Events

Every event is a JSON object whose field `type` names it, in UTF-8. New fields and new events are
added, none is renamed or removed: readers ignore what they do not know. The trace context travels
in the message headers. `penstock events schema` prints the JSON Schema of each; `penstock events
tail` shows them as they come. Subjects are shown for the default prefix `penstock`.

Fields of every event:
"""


def events_page() -> str:
    subjects, shown = Subjects(), set[type]()
    parts = [ENVELOPE_INTRODUCTION.strip(), field_table(Event)]
    for kind in ALL:
        told = entry(kind, subjects)
        about = [f"## {told.event}", f"Subject `{told.subject}`, stream `{told.stream}`."]
        parts += [*about, prose(kind), field_table(kind, beyond=Event)]
        parts += nested_tables(kind, shown)
    return "\n\n".join(part for part in parts if part)


def nested_tables(kind: type[msgspec.Struct], shown: set[type], level: str = "###") -> list[str]:
    """Tables of the structs that a struct's fields hold, where they are not shown already."""
    held = [
        part
        for field in msgspec.structs.fields(kind)
        for part in parts_of(field.type)
        if isinstance(part, type) and issubclass(part, msgspec.Struct) and part not in shown
    ]
    found = []
    for part in dict.fromkeys(held):
        shown.add(part)
        found += [
            f"{level} {part.__name__} (first in {kind.__name__})",
            prose(part),
            field_table(part),
        ]
    return found


def parts_of(kind: Any) -> Iterator[Any]:
    yield kind
    for argument in typing.get_args(kind):
        yield from parts_of(argument)


# --- settings -------------------------------------------------------------------------------------
SETTINGS_INTRODUCTION = """
# Settings

One file, `penstock.toml` (or the one that `--config` or `PENSTOCK_CONFIG` names). Environment
variables lie over it, flags over both. A variable's name is `PENSTOCK_`, the table, two
underscores, the key: `PENSTOCK_NATS__URL`, `PENSTOCK_POOLS__REPORTS__SLA_SECONDS`; its value is
read as TOML, else as text. An unknown key is an error, with the nearest known one as a suggestion.
`penstock config check` checks the whole, `penstock config show` prints what is in force.
"""


def settings_page() -> str:
    parts = [SETTINGS_INTRODUCTION.strip(), "## Top level"]
    sections: list[tuple[str, type[msgspec.Struct]]] = []
    plain = []
    for field in msgspec.structs.fields(declared.Settings):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            sections.append((field.name, field.type))
        elif field.name not in {"profiles", "pools"}:
            plain.append(field.name)
    parts.append(field_table(declared.Settings, only=plain))
    for name, kind in sections:
        parts += [f"## [{name}]", prose(kind), field_table(kind)]
    parts += ["## [pools.NAME]", prose(profiles.PoolTable), POOLS_NOTE]
    parts.append(field_table(profiles.PoolTable, beyond=profiles.ProfileOverride))
    parts += ["## [profiles.NAME]", prose(profiles.Profile), PROFILES_NOTE]
    parts += [field_table(profiles.Profile), "### Profiles that ship", profile_table()]
    return "\n\n".join(part for part in parts if part)


POOLS_NOTE = "Besides these, a pool takes every setting of a profile, laid over the one it names."
PROFILES_NOTE = "The defaults are those of `balanced`, which is used where no profile is named."


def profile_table() -> str:
    columns = ("sla_seconds", "quantile", "min_workers", "max_workers", "forecast", "strategy")
    rows = [
        [f"`{name}`", *(f"{getattr(profile, column)}" for column in columns)]
        for name, profile in profiles.PROFILES.items()
    ]
    return table(["profile", *(f"`{column}`" for column in columns)], rows)


# --- strategies -----------------------------------------------------------------------------------
def strategies_part() -> str:
    """What each says of itself in its module, and the settings it declares."""
    told = {name: strategy_words(strategy) for name, strategy in BUILTIN.items()}
    rows = [
        [f"[`{name}`](#{name})", purpose, choice_in(rest)] for name, (purpose, rest) in told.items()
    ]
    parts = [table(["strategy", "asks for", "choose it"], rows)]
    for name, (purpose, rest) in told.items():
        parts += [f"### `{name}`", f"{capital(purpose)}.", rest]
        if kind := options.declared(BUILTIN[name]):
            parts += [f"`[pools.NAME.options.{name}]`:", field_table(kind)]
            parts += nested_tables(kind, set(), level="####")
    return "\n\n".join(part for part in parts if part)


def strategy_words(strategy: Any) -> tuple[str, str]:
    """A module's docstring: the first line without ``Strategy `name`:``, and the rest."""
    module = inspect.getmodule(type(strategy))
    first, _, rest = inspect.cleandoc((module and module.__doc__) or "").partition("\n")
    return first.partition(": ")[2].rstrip("."), rest.strip("\n").replace("``", "`")


def choice_in(text: str) -> str:
    """The sentence that says when to choose it."""
    found = re.search(r"^Choose it (.+?)\.(\s|$)", text, re.M | re.S)
    return " ".join(found[1].split()) if found else ""


# --- policies -------------------------------------------------------------------------------------
def policies_part() -> str:
    """What each policy says of itself, the settings it declares, and the linter's rules."""
    usual = dict.fromkeys(profiles.USUAL_POLICIES, "yes")
    usual |= dict.fromkeys(profiles.PACES, f"not with {', '.join(sorted(profiles.OWN_PACE))}")
    rows = [
        [f"`{policy.name}`", usual.get(policy.name, ""), policy.about]
        for policy in SHIPPED.values()
    ]
    parts = ["## Those that ship", table(["policy", "on by default", "what it does"], rows)]
    for policy in SHIPPED.values():
        if policy.options:
            head = f"`[pools.NAME.policy_options.{policy.name}]`:"
            parts += [f"### `{policy.name}`", head, field_table(policy.options)]
    found = [[f"`{rule.name}`", rule.level, rule.about] for rule in RULES]
    checks = "## What `penstock config check` looks at"
    return "\n\n".join([*parts, checks, table(["rule", "level", "what is wrong"], found)])


# --- structs --------------------------------------------------------------------------------------
def field_table(
    kind: type[msgspec.Struct],
    beyond: type[msgspec.Struct] | None = None,
    only: list[str] | None = None,
) -> str:
    """Name, type, default, meaning of each field; without those of ``beyond``."""
    left_out = set(beyond.__struct_fields__) if beyond else set()
    meanings = meanings_of(kind)
    rows = [
        [
            f"`{field.name}`",
            type_words(field.type),
            default_words(field),
            meanings.get(field.name, ""),
        ]
        for field in msgspec.structs.fields(kind)
        if field.name not in left_out and (only is None or field.name in only)
    ]
    return table(["field", "type", "default", "meaning"], rows) if rows else ""


def meanings_of(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What docstrings say about each field: `Attributes:` sections, and strings below fields."""
    found: dict[str, str] = {}
    for above in reversed(kind.__mro__):
        if above is not msgspec.Struct and issubclass(above, msgspec.Struct):
            found |= from_attributes(above, kind.__struct_fields__)
            found |= from_strings_below(above)
    return found


def from_attributes(kind: type, names: tuple[str, ...]) -> dict[str, str]:
    """Reads ``name: meaning`` and ``one / other: meaning`` out of the section, many to a line."""
    doc = inspect.cleandoc(kind.__doc__ or "")
    _, _, section = doc.partition("Attributes:\n")
    text = " ".join(section.split())
    if not text or not names:
        return {}
    name = rf"`*(?:{'|'.join(map(re.escape, names))})`*"
    starts = list(re.finditer(rf"(?:^|(?<=\s))({name}(?: / {name})*): ", text))
    ends = [start.start() for start in starts[1:]] + [len(text)]
    found = {}
    for start, end in zip(starts, ends, strict=True):
        meaning = text[start.end() : end].strip().rstrip(";")
        for each in start[1].split(" / "):
            found[each.strip("`")] = capital(meaning)
    return found


def from_strings_below(kind: type) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError):
        return {}
    found = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(after.value.value).split())
    return found


def prose(kind: type) -> str:
    """A docstring without its `Attributes:`."""
    text, _, _ = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    return text.strip().replace("``", "`")


def type_words(kind: Any) -> str:
    """A type as people write it, with its limits."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return f"{type_words(arguments[0])}{limits(arguments[1:])}"
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        named = [part for part in arguments if part not in (type(None), UnsetType)]
        absent = " or none" if type(None) in arguments else ""
        return " or ".join(type_words(part) for part in named) + absent
    if origin is tuple:
        return f"list of {type_words(arguments[0])}"
    if origin is dict:
        return f"table of {type_words(arguments[1])}"
    simple = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    simple |= {bytes: "base64 text", Any: "anything", date: "date"}
    return simple.get(kind, getattr(kind, "__name__", str(kind)))


def limits(notes: tuple[Any, ...]) -> str:
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    found = [
        f"{sign} {value:g}"
        for note in notes
        if isinstance(note, Meta)
        for name, sign in signs.items()
        if (value := getattr(note, name)) is not None and value < NO_LIMIT
    ]
    patterns = [f"`{note.pattern}`" for note in notes if isinstance(note, Meta) and note.pattern]
    return f" ({', '.join(found + patterns)})" if found or patterns else ""


def default_words(field: Any) -> str:
    if field.default is not NODEFAULT:
        value = field.default
    elif field.default_factory is NODEFAULT:
        return "required"
    elif field.default_factory in (dict, list):
        value = field.default_factory()
    else:
        return COMPUTED
    if value is None:
        return "none"
    if isinstance(value, (tuple, dict, str, bytes)) and not value:
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value!r}`"


# --- command line ---------------------------------------------------------------------------------
CLI_INTRODUCTION = """
# The command `penstock`

Exit code 0: done. 1: it was tried and failed. 2: the call or the settings are wrong, nothing was
done. 130: interrupted. Errors are one line on standard error; `PENSTOCK_DEBUG=1` shows where they
come from. With `--json`, lists are printed as a JSON list of objects, single things as one object.

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


# --- markdown -------------------------------------------------------------------------------------
def table(titles: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    lines = [titles, ["---"] * len(titles), *([cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
