"""`penstock init`: makes the files of a new project, which runs as it is."""

from __future__ import annotations

import os
from pathlib import Path

import click

from penstock.cli.command import Command
from penstock.cli.errors import Failed, Refused
from penstock.cli.output import note, write_json, write_line
from penstock.cli.project.files import texts
from penstock.cli.session import Session

_IGNORED = ".gitignore"


@click.command(cls=Command, example="penstock init shop")
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
@click.pass_obj
def init(session: Session, folder: Path) -> None:
    """Make a project in FOLDER (default: here): settings, a job, a client, a test, a systemd unit.

    No file is overwritten: if one is there already, nothing is written. A .gitignore is kept.
    """
    place = folder.resolve()
    try:
        project = texts(place)
    except ValueError as error:
        raise Refused(str(error)) from error
    kept = [name for name in project if os.path.lexists(place / name)]
    if refused := [name for name in kept if name != _IGNORED]:
        raise Refused(
            f"{place} has {', '.join(refused)} already, and nothing is overwritten; "
            "give another folder: penstock init NAME"
        )
    paths = [place / name for name in project if name not in kept]
    try:
        place.mkdir(parents=True, exist_ok=True)
        for path in paths:
            with path.open("x", encoding="utf-8") as file:
                file.write(project[path.name])
    except OSError as error:
        raise Failed(f"{error.filename or place} cannot be written: {error.strerror}") from error
    if kept:
        note(f"{_IGNORED} is kept as it is; add the line .penstock/ to it")
    if session.as_json:
        write_json({"folder": str(place), "files": [path.name for path in paths]})
        return
    for path in paths:
        write_line(str(folder / path.name))
    enter = "" if place == Path.cwd() else f"cd {folder} && "
    note(f"next: {enter}penstock up; in another terminal of that folder: python client.py")
