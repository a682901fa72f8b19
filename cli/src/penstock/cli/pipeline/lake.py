"""What commands that read the lake share: where it is, who reads it, and what they need."""

from __future__ import annotations

import importlib
from typing import Any

import click

from penstock.cli.errors import Failed
from penstock.cli.service import find

LAKE = click.option(
    "--lake", required=True, metavar="DIR", help="Folder on any file system that Hadoop knows."
)
MASTER = click.option(
    "--master", default="local[2]", show_default=True, help="Spark master to run on."
)


def part_of(package: str, module: str) -> Any:
    """A module of a distribution that may be missing, such as ``pipeline`` and ``forecasts``.

    Raises:
        Failed: it, or what it needs, is not installed.
    """
    try:
        find(package)
        return importlib.import_module(f"penstock.{package}.{module}")
    except ModuleNotFoundError as error:
        raise Failed(
            f"penstock-{package} needs the package {error.name}; "
            f"install penstock-{package} with what it depends on"
        ) from error
