"""The generated pages: nothing declared is left without a meaning."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import docstrings
import msgspec
import pytest
from tests.unit.decider.asking import wanted

import penstock.bus.protocol
import penstock.jobs.errors
import penstock.jobs.middleware
from penstock.config import Settings
from penstock.config.profiles import Profile, ProfileOverride
from penstock.decider.core import options
from penstock.decider.core.registry import BUILTIN, with_installed
from penstock.jobs import Client
from penstock.testing.memory.bus import MemoryBus

GENERATE = Path(__file__).parents[3] / "docs" / "generate.py"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", GENERATE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sections(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """The tables of a settings file, however deep."""
    for field in msgspec.structs.fields(kind):
        for part in (field.type, *typing.get_args(field.type)):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                yield part
                yield from sections(part)


def documented(kind: type[msgspec.Struct]) -> dict[str, str]:
    """A table that overrides a profile has the profile's meanings."""
    beyond = docstrings.meanings_of(Profile) if issubclass(kind, ProfileOverride) else {}
    return beyond | docstrings.meanings_of(kind)


@pytest.mark.parametrize(
    "section", [*dict.fromkeys(sections(Settings)), Profile], ids=lambda kind: kind.__name__
)
def test_every_setting_has_a_meaning(section) -> None:
    meanings = documented(section)
    assert [f.name for f in msgspec.structs.fields(section) if not meanings.get(f.name)] == []


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_every_strategy_says_what_it_is_for_and_where_it_fails(generate, name) -> None:
    purpose, rest = generate.strategy_words(BUILTIN[name])
    assert purpose
    assert generate.choice_in(rest)
    assert "\nWeakness" in rest
    if kind := options.declared(BUILTIN[name]):
        meanings = docstrings.meanings_of(kind)
        assert [f.name for f in msgspec.structs.fields(kind) if not meanings.get(f.name)] == []


def test_the_strategy_of_the_page_works(monkeypatch) -> None:
    text = GENERATE.with_name("strategies.md").read_text("utf-8")
    block = re.search(r"```python\n(.*?)```", text, re.S)
    assert block
    module: Any = ModuleType("lines")
    monkeypatch.setitem(sys.modules, "lines", module)
    exec(block[1], vars(module))
    strategies = with_installed({"lines": module.Lines()})
    assert wanted("lines", {"per_worker": 2}, strategies=strategies, waiting=5, running=2) == 4


def test_what_people_wrote_around_a_made_part_stays(generate, tmp_path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{generate.NOTE}\nold\n{generate.NOTE_END}\nafter\n")
    page.write_text(generate.with_part(page, "new"))
    assert page.read_text().split("\n") == [
        *("before", generate.NOTE, "", "new", "", generate.NOTE_END, "after", "")
    ]
    assert generate.with_part(page, "new") == page.read_text()
    page.write_text("no marks\n")
    with pytest.raises(SystemExit, match="found no"):
        generate.with_part(page, "new")


def test_an_outdated_page_is_reported(generate, tmp_path, capsys) -> None:
    page = tmp_path / "events.md"
    page.write_text("old\n")
    assert generate.check({page: "new\n"}) == 1
    assert "docs/events.md is out of date; run: make docs" in capsys.readouterr().out
    page.write_text("new\n")
    assert generate.check({page: "new\n"}) == 0


PAGES = [
    page
    for page in sorted(GENERATE.parent.rglob("*.md"))
    if page.parent.name != "decisions" and page.name != "new-user-findings.md"
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_imports_exists(page: Path) -> None:
    statement = r"^from (penstock[\w.]*) import (?:\(([^)]*)\)|(.+))$"
    for module, several, one in re.findall(statement, page.read_text("utf-8"), re.M):
        names = re.findall(r"\w+", re.sub(r"#.*", "", several or one))
        missing = [name for name in names if not hasattr(importlib.import_module(module), name)]
        assert missing == [], f"{page.name}: from {module} import {missing}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_jobs_exports_the_errors_and_values_that_a_page_names(page: Path) -> None:
    declared = {
        name: value
        for module in (penstock.bus.protocol, penstock.jobs.errors, penstock.jobs.middleware)
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    named = set(re.findall(r"`([A-Z]\w+)`", page.read_text("utf-8"))) & declared.keys()
    assert {name for name in named if declared[name] is not getattr(penstock.jobs, name, None)} <= {
        "Bus",  # for those who write a broker of their own
        "Verdict",  # of a scaling policy
    }


def test_the_api_page_describes_all_that_jobs_exports(generate: ModuleType) -> None:
    page = generate.api_page()
    absent = [
        name
        for name in penstock.jobs.__all__
        if not re.search(rf"^### `?{name}\b|^.*─ {name}\b|`penstock\.jobs\.{name}`", page, re.M)
    ]
    assert [name for name in absent if name != "JobsError"] == []


def test_the_api_page_describes_every_verb_of_a_client(generate: ModuleType) -> None:
    page, client = generate.api_page(), Client(MemoryBus("p"), prefix="p")
    attributes = {name: value for name, value in vars(client).items() if not name.startswith("_")}
    del attributes["dispatcher"]  # for the platform itself
    for name, value in attributes.items():
        section = page.partition(f"### {type(value).__name__}\n")[2].partition("\n## ")[0]
        assert section, f"client.{name} is not on the page"
        for verb, method in inspect.getmembers(type(value), inspect.isroutine):
            assert verb.startswith("_") or inspect.getdoc(method), f"client.{name}.{verb}"
            assert verb.startswith("_") or f"{verb}(" in section, f"client.{name}.{verb}"


def test_defaults_stand_as_in_the_file() -> None:
    pages = [GENERATE.with_name(f"{name}.md") for name in ("settings", "policies", "strategies")]
    tables = "".join(page.read_text("utf-8") for page in pages)
    defaults = [line.split(" | ")[2] for line in tables.splitlines() if line.startswith("| `")]
    assert "`false`" in defaults
    assert not [one for one in defaults if one.startswith("`'") or one.endswith(".0`")]
