"""Writes the generated pages of this folder, and parts of pages, from the code.

python docs/generate.py            writes events.md, settings.md, cli.md, api.md,
                                   telemetry.md, console-api.md,
                                   parts of strategies.md and policies.md
python docs/generate.py --check    compares; exit code 1 and a summary when one is out of date
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
import typing
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from api_page import api_page
from cli_page import cli_page
from console_parity import console_page
from docstrings import capital, prose
from tables import field_table, table
from telemetry_page import telemetry_page

from penstock.config import profiles
from penstock.config import settings as declared
from penstock.config.hooks import HookTable
from penstock.config.schedules import ScheduleTable
from penstock.config.sources import SourceTable
from penstock.decider.core import options
from penstock.decider.core.lint.check import RULES
from penstock.decider.core.policies.shipped import SHIPPED
from penstock.decider.core.registry import BUILTIN
from penstock.events.catalogue import ALL, entry
from penstock.events.envelope import Event
from penstock.events.subjects import Subjects
from penstock.jobs import lifecycle
from penstock.jobs.batches import batch_record
from penstock.jobs.event_store.event_sourcing import Edge
from penstock.jobs.workflows import graph_record

HERE = Path(__file__).parent
NOTE = "<!-- Made by docs/generate.py from the code; `make docs` writes it anew. -->"
NOTE_END = "<!-- Written by hand from here on. -->"


def main(arguments: list[str]) -> int:
    pages = {"events.md": events_page, "settings.md": settings_page, "cli.md": cli_page}
    pages["api.md"] = api_page
    pages["console-api.md"] = console_page
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
    """Compares each page with its new text, and prints the differences."""
    stale = 0
    for path, text in texts.items():
        written = path.read_text("utf-8") if path.is_file() else ""
        if written != text:
            stale += 1
            print(f"docs/{path.name} is out of date; run: make docs")
            changes = difflib.unified_diff(
                written.splitlines(), text.splitlines(), "written", "declared", lineterm="", n=0
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
        listed = entry(kind, subjects)
        about = [f"## {listed.event}", f"Subject `{listed.subject}`, stream `{listed.stream}`."]
        parts += [*about, prose(kind), field_table(kind, beyond=Event)]
        parts += nested_tables(kind, shown)
    return "\n\n".join(part for part in [*parts, *life_cycles()] if part)


LIFE_CYCLES_INTRODUCTION = """
## Life cycles

Which events may follow in which state. An event that may not follow, or that a reader cannot
decode, changes nothing but the sequence that the next event has to expect.
"""


def life_cycles() -> list[str]:
    """The tables of transitions of jobs, batches and graphs."""
    tables: dict[str, Sequence[Edge[Any, Any]]] = {
        "job": lifecycle.TRANSITIONS,
        "batch": batch_record.TRANSITIONS,
        "graph": graph_record.TRANSITIONS,
    }
    parts = [LIFE_CYCLES_INTRODUCTION.strip()]
    for noun, edges in tables.items():
        rows = [
            [
                f"`{edge.event.__name__}`",
                ", ".join(str(source or "none yet") for source in edge.sources),
                str(edge.target or "unchanged"),
                edge.why,
            ]
            for edge in edges
        ]
        parts += [f"### Of a {noun}", table(["event", "from", "to", "when"], rows)]
    return parts


def nested_tables(kind: type[msgspec.Struct], shown: set[type], level: str = "###") -> list[str]:
    """Tables of the structs that a struct's fields hold, where they are not shown already."""
    held = [
        part
        for field in msgspec.structs.fields(kind)
        for part in parts_of(field.type)
        if isinstance(part, type) and issubclass(part, msgspec.Struct) and part not in shown
    ]
    tables = []
    for part in dict.fromkeys(held):
        shown.add(part)
        tables += [
            f"{level} {part.__name__} (first in {kind.__name__})",
            prose(part),
            field_table(part),
        ]
    return tables


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
`penstock config check` checks the whole, `penstock config show` prints the result.

A changed file counts after `penstock config reload`, or SIGHUP to a service. Each service then
reads its own file and variables anew. One that cannot use them keeps its settings, and logs why.
Metrics, decider, orchestrator, console and scaler start anew within their process and take over
everything; one that cannot start with the new settings (a port is taken) goes on with those of
before. An executor goes on: it takes over what has `yes` in the column *reload*, and the rest, and
pools of kind `spark`, when it is restarted. Workers keep what they were started with, so it
replaces those whose own settings changed (queues, slots, tries, limits and the like), as `penstock
reload` does: a few at a time, idle ones first, busy ones after their jobs. A changed `sla_seconds`
replaces none: workers that live count late jobs by the old one. `jobs.modules` waits for `penstock
reload`. Clients read their settings when they start. `penstock config diff` compares the file with
what each service runs with; `penstock health` reports differences, and `penstock pool ls` shows
what is in force.
"""


def settings_page() -> str:
    parts = [SETTINGS_INTRODUCTION.strip(), "## Top level"]
    sections: list[tuple[str, type[msgspec.Struct]]] = []
    plain = []
    for field in msgspec.structs.fields(declared.Settings):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            sections.append((field.name, field.type))
        elif field.name not in {"profiles", "pools", "schedules", "sources"}:
            plain.append(field.name)
    parts.append(field_table(declared.Settings, only=plain))
    for name, kind in sections:
        within = list(tables_within(kind))
        plain = [one for one in kind.__struct_fields__ if one not in dict(within)]
        parts += [f"## [{name}]", prose(kind), field_table(kind, only=plain)]
        for field, below in within:
            parts += [f"## [{name}.{field}]", prose(below), field_table(below)]
    parts += ["## [pools.NAME]", prose(profiles.PoolTable), POOLS_NOTE]
    parts.append(field_table(profiles.PoolTable, beyond=profiles.ProfileOverride))
    for field, below in tables_within(profiles.PoolTable):
        parts += [f"## [pools.NAME.{field}]", prose(below), field_table(below)]
    parts += ["## [profiles.NAME]", prose(profiles.Profile), PROFILES_NOTE]
    parts += [field_table(profiles.Profile), "### Profiles that ship", profile_table()]
    parts += ["## [sources.NAME]", prose(SourceTable), field_table(SourceTable)]
    parts += ["## [schedules.NAME]", prose(ScheduleTable), field_table(ScheduleTable)]
    parts += ["## [hooks.NAME]", prose(HookTable), field_table(HookTable)]
    return "\n\n".join(part for part in parts if part)


def tables_within(section: type[msgspec.Struct]) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Name and type of the tables that a table holds."""
    for field in msgspec.structs.fields(section):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield field.name, field.type


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
    """Each strategy's docstring, and the settings that it declares."""
    texts = {name: strategy_words(strategy) for name, strategy in BUILTIN.items()}
    rows = [
        [f"[`{name}`](#{name})", purpose, choice_in(rest)]
        for name, (purpose, rest) in texts.items()
    ]
    parts = [table(["strategy", "asks for", "choose it"], rows)]
    for name, (purpose, rest) in texts.items():
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
    match = re.search(r"^Choose it (.+?)\.(\s|$)", text, re.M | re.S)
    return " ".join(match[1].split()) if match else ""


# --- policies -------------------------------------------------------------------------------------
def policies_part() -> str:
    """Each policy's sentence, the settings that it declares, and the linter's rules."""
    usual = dict.fromkeys(profiles.USUAL_POLICIES, "yes")
    usual |= dict.fromkeys(profiles.PACES, f"not with {', '.join(sorted(profiles.OWN_PACE))}")
    rows = [
        [f"`{policy.name}`", usual.get(policy.name, ""), policy.about]
        for policy in SHIPPED.values()
    ]
    parts = ["## Shipped policies", table(["policy", "on by default", "what it does"], rows)]
    for policy in SHIPPED.values():
        if policy.options:
            head = f"`[pools.NAME.policy_options.{policy.name}]`:"
            parts += [f"### `{policy.name}`", head, field_table(policy.options)]
    rules = [[f"`{rule.name}`", rule.level, rule.about] for rule in RULES]
    checks = "## What `penstock config check` looks at"
    return "\n\n".join([*parts, checks, table(["rule", "level", "what is wrong"], rules)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
