"""Types of options and arguments, checked before anything is sent, and shared options."""

from __future__ import annotations

from typing import Any

import click

from penstock.events.subjects import BadName, check_name
from penstock.views.wording import read_seconds


class Name(click.ParamType[str]):
    """A name that becomes a token of a subject; ``kind`` names it in errors."""

    def __init__(self, kind: str, shown: str = "name") -> None:
        self.kind, self.name = kind, shown

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return check_name(self.kind, str(value))
        except BadName as error:
            self.fail(str(error), param, ctx)


class Seconds(click.ParamType[float]):
    """A length of time with a unit, in seconds."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return value if isinstance(value, float) else read_seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


JOB_ID = Name("job", "id")
QUEUE = Name("queue")
POOL = Name("pool")
HOST = Name("host")
SECONDS = Seconds()

LAKE = click.option(
    "--lake", required=True, metavar="DIR", help="Folder on any file system that Hadoop knows."
)
MASTER = click.option(
    "--master", default="local[2]", show_default=True, help="Spark master to run on."
)
MOST_ROWS = click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Most rows to list.",
)
