"""Pages for those who come from elsewhere: each name of ours on them exists."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import pytest

from penstock import jobs
from penstock.cli.main import cli
from penstock.jobs import WorkflowContext
from penstock.testing import Bench

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("from-other-engines.md", "tutorials/from-celery.md")
_SIGNATURES = {"@job": jobs.job, "@workflow": jobs.workflow, "ctx.run": WorkflowContext.run}


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    return (DOCS / request.param).read_text("utf-8")


def test_what_the_page_calls_can_be_called(page: str) -> None:
    client = Bench().client
    calls = re.findall(r"\b(ctx|client)\.(\w+)(?:\.(\w+))?", page)
    assert calls
    for owner, name, inner in calls:
        if owner == "client":
            assert hasattr(getattr(client, name), inner or "__class__"), (name, inner)
        else:
            assert hasattr(WorkflowContext, name), name


def test_the_commands_of_the_page_exist(page: str) -> None:
    context = click.Context(cli)
    for words in re.findall(r"[`$] ?penstock ((?:[a-z-]+ ?)+)", page):
        command: click.Command | None = cli
        for word in words.split():
            if isinstance(command, click.Group):
                command = command.get_command(context, word)
                assert command is not None, words


def test_the_options_of_the_page_exist(page: str) -> None:
    for function, arguments in re.findall(r"`(@job|@workflow|ctx\.run)\((.*?)\)+`", page):
        known = inspect.signature(_SIGNATURES[function]).parameters
        for name in re.findall(r"(?<!\()\b(\w+)=", re.sub(r"\w+\([^)]*\)?", "", arguments)):
            assert name in known, (function, name)
