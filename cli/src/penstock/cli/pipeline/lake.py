"""The options of commands that read the lake: where it is, and which Spark reads it."""

from __future__ import annotations

import click

LAKE = click.option(
    "--lake", required=True, metavar="DIR", help="Folder on any file system that Hadoop knows."
)
MASTER = click.option(
    "--master", default="local[2]", show_default=True, help="Spark master to run on."
)
