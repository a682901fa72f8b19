"""The files of a new project: templates with this machine's paths in them."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path
from string import Template

from penstock.runtime.interpreter import module_command

TEMPLATES = {
    "penstock.toml": "penstock.toml",
    "jobs.py": "jobs.py.txt",
    "client.py": "client.py.txt",
    "test_jobs.py": "test_jobs.py.txt",
    "penstock.service": "penstock.service",
    ".gitignore": "gitignore",
}
"""Template of each file."""
_CONTROL = frozenset(map(chr, [*range(32), 127]))


def texts(folder: Path) -> dict[str, str]:
    """What each file of a project in ``folder`` holds, by its name.

    Raises:
        ValueError: the folder's path cannot stand in a systemd unit.
    """
    places = {
        "name": _in_unit(folder.name),
        "folder": _in_unit(str(folder)),
        "command": " ".join(_quoted(part) for part in _command()),
    }
    templates = files("penstock.cli.project") / "templates"
    return {
        name: _filled(name, (templates / template).read_text("utf-8"), places)
        for name, template in TEMPLATES.items()
    }


def _filled(name: str, text: str, places: dict[str, str]) -> str:
    return Template(text).substitute(places) if name.endswith(".service") else text


def _command() -> list[str]:
    script = Path(sys.executable).with_name("penstock")
    return [str(script)] if script.is_file() else module_command("penstock.cli.main")


def _in_unit(text: str) -> str:
    """Text for a systemd unit, where ``%`` begins a specifier."""
    if _CONTROL & set(text):
        raise ValueError(f"the path {text!r} has control characters; choose another folder")
    if text.endswith("\\"):  # systemd would join the line with the next one
        raise ValueError(f"the path {text!r} ends in a backslash; choose another folder")
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """A word of ``ExecStart``, where ``$`` begins a variable."""
    escaped = _in_unit(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if set(escaped) & set(" '\"") else escaped
