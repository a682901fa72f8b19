"""Calling `penstock` in this process, as a shell would."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli

Penstock = Callable[..., Result]


@pytest.fixture
def penstock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Penstock]:
    """Runs a command in an empty folder with no PENSTOCK_* variable set."""
    for name in ("PENSTOCK_CONFIG", "PENSTOCK_NATS__URL", "PENSTOCK_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    handlers, level = logging.root.handlers[:], logging.root.level

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments))

    yield run
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
