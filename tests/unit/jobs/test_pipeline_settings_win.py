"""Jobs of the pipeline work with the settings of the worker's host, whatever their call says."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config.spark import Pipeline
from penstock.jobs import pipeline

RECORDER = """#!{python}
import json, os, sys
seen = [sys.argv[1:], os.environ.get("PENSTOCK_NATS__NKEY_FILE", "")]
open({file!r}, "a").write(json.dumps(seen) + chr(10))
print("[]")
"""
FOREIGN: dict[str, Any] = {"lake": "s3a://foreign/x", "master": "spark://foreign:7077"}
CALLS = [
    (pipeline.land, {**FOREIGN, "nkey_file": "/foreign/operator.seed"}),
    (
        pipeline.forecast,
        {**FOREIGN, "nkey_file": "/foreign/operator.seed", "weeks": 99.0, "zone": "foreign"},
    ),
    (pipeline.report, {**FOREIGN, "out": "/foreign/.profile"}),
]


class Watched:
    """The context of a job."""

    logger = logging.LoggerAdapter(logging.getLogger("penstock.jobs.pipeline"), {})

    def heartbeat(self) -> None:
        pass


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of Python that records what it was started with."""
    program, file = tmp_path / "recorder", tmp_path / "commands"
    program.write_text(RECORDER.format(python=sys.executable, file=str(file)), "utf-8")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    return file


@pytest.fixture
def own_settings() -> Iterator[None]:
    pipeline.use(Pipeline(lake="/own/lake", nkey_file="/own/seed", report_file="/own/page.html"))
    yield
    pipeline.use(Pipeline())


@pytest.mark.usefixtures("own_settings")
@pytest.mark.parametrize(("job", "arguments"), CALLS, ids=lambda value: getattr(value, "name", ""))
def test_what_a_dispatcher_names_is_ignored(commands: Path, job, arguments, caplog) -> None:
    job.function(Watched(), **arguments)
    recorded = commands.read_text("utf-8")
    assert "foreign" not in recorded
    for words, key in map(json.loads, recorded.splitlines()):
        settings = json.loads(words[-1])
        assert (settings["lake"], settings["master"]) == ("/own/lake", "local[2]")
        assert key == ("" if job is pipeline.report else "/own/seed")
    assert "arguments are ignored" in caplog.text


@pytest.mark.parametrize(("job", "arguments"), CALLS, ids=lambda value: getattr(value, "name", ""))
def test_a_host_without_a_lake_runs_none_of_them(commands: Path, job, arguments) -> None:
    with pytest.raises(pipeline.PipelineFailed, match=r"pipeline\.lake is empty"):
        job.function(Watched(), **arguments)
    assert not commands.exists()


def test_schedules_carry_nothing_that_could_be_changed_on_the_way() -> None:
    wanted = Pipeline(lake="/own/lake", nkey_file="/own/seed", report_file="/own/page.html")
    calls = [call for _, call in pipeline.by_clock(wanted).values()]
    assert len(calls) == 3
    assert all(b"own" not in call.arguments for call in calls)
