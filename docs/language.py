"""Keeps private dialect out of the code and its pages: ``python docs/language.py [PATH …]``.

Names are checked where they are bound (variables, arguments, attributes, functions, classes);
words are checked in docstrings, comments, messages and Markdown pages. Each finding is a line with
the preferred terms; the exit code is 1 when there is any.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

NAMES = {
    "again": "retry, requeued …: the action",
    "asked": "request, requested_at",
    "each": "the noun of the item",
    "found": "the noun of what was looked up",
    "gone": "ended, removed, lost",
    "heard": "message, received_at",
    "known": "the noun: records, hosts …",
    "mine": "own_…",
    "more": "the noun: further_rows, has_next …",
    "nobody": "no_worker, no_host …",
    "ours": "own_…, local_…",
    "said": "the noun: settings, answer, reply",
    "seen": "the noun, or observed_…",
    "somebody": "the noun",
    "such": "the noun",
    "tell": "notify, publish, report, record",
    "telling": "notifying, publishing",
    "theirs": "remote_…, other_…",
    "these": "the noun",
    "this": "the noun",
    "those": "the noun",
    "told": "notified, published, reported, decision_events",
    "who": "the noun: worker, caller",
    "whoever": "the noun",
    "wholes": "workflows, batches_and_graphs",
    "wish": "demand, desired_workers",
}
"""Banned names, with underscores around them ignored, and what to call it instead."""

WORDS = {
    r"nobody": "no worker, no server …: name the subject",
    r"somebody": "name the subject",
    r"whoever": "name the subject",
    r"told": "notified, reported, recorded, given",
    r"tell(s|ing)?": "reports, publishes, shows, notifies",
    r"said": "reported, set, declared",
    r"says so": "reports it",
    r"hears?": "receives, is notified",
    r"heard": "received",
    r"(can(not)?|to) be had": "is (not) available",
    r"round and round": "name what repeats",
    r"se(e|en|es) to it": "ensures",
}
"""Banned words of prose, as expressions without regard to case, and the preferred ones."""

PROSE = re.compile("|".join(rf"(?P<w{n}>\b(?:{word})\b)" for n, word in enumerate(WORDS)), re.I)
PREFERRED = list(WORDS.values())
PROSE_TOKENS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)}
"""From Python 3.12 on, the text of an f-string is a token of its own."""
PLACES = ("shared", "services", "cli", "testing", "docs", "deploy", "examples", "README.md")
SKIPPED = {
    "docs/language.py",
    "docs/decisions/0026-layout-and-language.md",  # these three quote earlier wordings
    "docs/new-user-findings.md",
    "docs/reference-items.md",
}
STORED_FIELDS = {("shared/src/penstock/events/graph.py", "again")}
"""Fields of events that are stored under these names: event logs would become unreadable."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "paths", nargs="*", type=Path, help="files or folders; else all the product"
    )
    parser.add_argument("--count", action="store_true", help="only the number of findings")
    options = parser.parse_args()
    findings = list(check(options.paths or [ROOT / place for place in PLACES]))
    for line in [str(len(findings))] if options.count else findings:
        print(line)
    sys.exit(1 if findings else 0)


def check(paths: list[Path]) -> Iterator[str]:
    """A line for each finding, as ``file:line: what (preferred)``."""
    for path in sorted({file for place in paths for file in _files(place.resolve())}):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if any(name.startswith(skipped) for skipped in SKIPPED):
            continue
        findings = python(text) if path.suffix == ".py" else prose(text, 1)
        stored = [f"the name {field} " for file, field in STORED_FIELDS if file == name]
        for line, finding in sorted(findings):
            if not finding.startswith(tuple(stored)):
                yield f"{name}:{line}: {finding}"


def python(text: str) -> list[tuple[int, str]]:
    """Findings in a module: names that it binds, and the words of its strings and comments."""
    findings = [
        (line, f"the name {name} (rather: {NAMES[name.strip('_')]})")
        for line, name in _bound(ast.parse(text))
        if name.strip("_") in NAMES
    ]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_key = token.string.strip("\"'").isidentifier()  # a field on the wire, a dictionary's key
        if token.type in PROSE_TOKENS and not is_key:
            findings += prose(token.string, token.start[0])
    return findings


def prose(text: str, first_line: int) -> list[tuple[int, str]]:
    """Findings in prose, which begins at this line."""
    return [
        (
            first_line + text.count("\n", 0, match.start()),
            f'"{match[0]}" (rather: {PREFERRED[int(str(match.lastgroup)[1:])]})',
        )
        for match in PROSE.finditer(text)
    ]


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for suffix in ("*.py", "*.md"):
        yield from (file for file in path.rglob(suffix) if ".egg-info" not in str(file))


def _bound(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name


if __name__ == "__main__":
    main()
