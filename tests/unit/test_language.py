"""The check of names and words: each class of finding, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import language
import pytest


def names(text: str) -> list[str]:
    """The banned names that are found in a module."""
    findings = [finding for _, finding in language.python(text)]
    return [f.removeprefix("the name ").split()[0] for f in findings if f.startswith("the name ")]


def words(text: str) -> list[str]:
    """The banned words that are found in prose."""
    return [finding.split('"')[1] for _, finding in language.prose(text, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "found = 1",
        "found: int = 1",
        "a, found = 1, 2",
        "for found in (): pass",
        "with open('x') as found: pass",
        "if (found := 1): pass",
        "[found for found in ()]",
        "def found(): pass",
        "async def found(): pass",
        "class found: pass",
        "def f(found): pass",
        "def f(*, found=1): pass",
        "def f(*found): pass",
        "lambda found: 1",
        "try: pass\nexcept ValueError as found: pass",
        "match 1:\n    case found: pass",
        "self.found = 1",
        "import os as found",
        "from os import path as found",
    ],
)
def test_a_banned_name_is_found_where_it_is_bound(text: str) -> None:
    assert names(text) == ["found"]


@pytest.mark.parametrize("text", ["_found = 1", "found_ = 1", "__found = 1"])
def test_underscores_around_a_name_do_not_hide_it(text: str) -> None:
    assert [name.strip("_") for name in names(text)] == ["found"]


@pytest.mark.parametrize(
    "text", ["print(found)", "import found", "job.found()", "found_job = 1", "f(found=1)"]
)
def test_a_name_that_others_bound_or_that_only_begins_alike_is_left_alone(text: str) -> None:
    assert names(text) == []


@pytest.mark.parametrize("name", sorted(language.NAMES))
def test_each_banned_name_has_a_preferred_one(name: str) -> None:
    [(line, finding)] = language.python(f"\n{name} = 1")
    assert (line, finding) == (2, f"the name {name} (rather: {language.NAMES[name]})")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Nobody leads.", ["Nobody"]),
        ("somebody or whoever", ["somebody", "whoever"]),
        ("It was told, tells and is telling.", ["told", "tells", "telling"]),
        ("as he said", ["said"]),
        ("the page says so", ["says so"]),
        ("It hears what was heard.", ["hears", "heard"]),
        ("a port cannot be had, none is to be had", ["cannot be had", "to be had"]),
        ("it goes round and round", ["round and round"]),
        ("the executor sees to it", ["sees to it"]),
    ],
)
def test_banned_words_are_found_in_prose(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize("text", ["a teller of tales", "the storyteller", "unsaid", "shear"])
def test_a_word_within_another_is_left_alone(text: str) -> None:
    assert words(text) == []


@pytest.mark.parametrize(
    "text",
    [
        '"""Nobody leads."""',
        "def f():\n    '''Nobody leads.'''",
        "# Nobody leads.",
        "log.error('Nobody leads')",
        "log.error(f'Nobody leads {host}')",
    ],
    ids=["docstring", "docstring of a function", "comment", "message", "f-string"],
)
def test_words_are_found_in_what_people_read_of_a_module(text: str) -> None:
    assert ["Nobody" in finding for _, finding in language.python(text)] == [True]


def test_a_finding_has_its_line_and_the_preferred_words() -> None:
    [(line, finding)] = language.prose("One line.\nNobody leads.", 10)
    assert line == 11
    assert finding == '"Nobody" (rather: no worker, no server …: name the subject)'


def test_files_are_checked_by_their_kind_and_findings_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "code.py").write_text("found = 1\n")
    (tmp_path / "docs/page.md").write_text("found = 1\nNobody.\n")
    (tmp_path / "docs/language.py").write_text("found = 1\n")
    (tmp_path / "data.json").write_text('"Nobody"')
    places = [finding.partition(": ")[0] for finding in language.check([tmp_path])]
    assert places == ["code.py:1", "docs/page.md:2"]
