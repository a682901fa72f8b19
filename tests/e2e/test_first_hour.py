"""A newcomer's way in, from wheels that are built here: the light client, and the whole first hour.

The packages that Penstock needs come from where pip is configured to find them; without them the
tests are skipped, with what pip reported.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.shell import Shell
from tests.integration.test_up import running_up

from penstock.runtime.paths import free_port

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
first_hour = importlib.import_module("first_hour")  # the same way, timed

BY_NAME = """
import json, sys
from penstock.config import ConfigError, load
from penstock.config.load import check
from penstock.bus.nats import connect
from penstock.jobs import SyncClient

with SyncClient(load()) as client:
    job_id = client.dispatch_named("jobs.count_words", {"text": "to be"}, queue="default")
    job = client.wait(job_id, timeout_seconds=60)
heavy = ("cryptography", "nkeys", "uvloop", "psutil", "prometheus_client", "opentelemetry.sdk")
loaded = [name for name in (*heavy, "jobs") if name in sys.modules]
try:
    SyncClient(check({"nats": {"url": "nats://127.0.0.1:1", "nkey_file": "seed"}}))
except ConfigError as error:
    refused = str(error)
print(json.dumps({"result": job.result, "loaded": loaded, "refused": refused}))
"""


def skip_without_dependencies(printed: str) -> None:
    """Skips where pip finds no package index; a distribution of Penstock must be found."""
    missing = re.search(r"No matching distribution found for (?!penstock).*", printed)
    if missing:
        pytest.skip(f"pip cannot install what Penstock needs: {missing[0]}")


Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Makes an environment with a package of Penstock in it; returns its Python."""

    def make(package: str) -> Path:
        environment = tmp_path / "environment"
        python = environment / "bin" / "python"
        venv = [first_hour.PYTHON, "-m", "venv", str(environment)]
        if subprocess.run(venv, check=False).returncode:
            pytest.skip("this Python cannot make environments (Debian: python3-venv)")
        first_hour.build_wheels(tmp_path / "dist", ["./shared"])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--find-links", "dist"]
        pip.append(first_hour.wheel_of(package, "dist"))
        done = subprocess.run(pip, cwd=tmp_path, capture_output=True, text=True, check=False)
        skip_without_dependencies(done.stderr)
        assert done.returncode == 0, done.stderr
        return python

    return make


def test_a_light_client_dispatches_by_name(install: Install, tmp_path: Path) -> None:
    python = install("penstock-client")
    packages, megabytes = first_hour.installed(tmp_path / "environment")
    assert packages <= 10
    assert megabytes <= 15

    project = tmp_path / "shop"
    Shell(tmp_path).call("init", "shop")
    settings = project / "penstock.toml"  # one file for `penstock up` and for its clients
    named = f'[nats]\nurl = "nats://127.0.0.1:{free_port()}"\n'
    settings.write_text(settings.read_text() + named)
    (tmp_path / "by_name.py").write_text(BY_NAME)
    with running_up(project, 20.0) as up:
        up.until_ready()
        program = subprocess.run(
            [str(python), "-P", str(tmp_path / "by_name.py")],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert program.returncode == 0, program.stderr
    assert json.loads(program.stdout) == {
        "result": 2,
        "loaded": [],
        "refused": "nats.nkey_file needs the package nkeys; "
        "run: pip install 'penstock-client[keys]'",
    }


def test_wheels_that_were_built_anew_replace_those_of_the_same_version(
    install: Install, tmp_path: Path
) -> None:
    python = install("penstock-client")
    page = (ROOT / "docs" / "first-project.md").read_text()
    [command] = re.findall(r"^pip install --force-reinstall .*$", page, re.M)
    [module] = (tmp_path / "environment").glob("lib/*/site-packages/penstock/jobs/client.py")
    built = module.read_text()
    module.write_text("of the wheels before")
    project = tmp_path / "shop"
    project.mkdir()
    subprocess.run(
        ["sh", "-c", command.replace("../penstock/dist", "../dist")],
        cwd=project,
        env=os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}"},
        check=True,
    )
    assert module.read_text() == built


@pytest.mark.long
def test_a_first_project_runs_from_wheels_without_spark(tmp_path: Path) -> None:
    folder, run_time, wheels = tmp_path / "shop", tmp_path / "r", tmp_path / "dist"
    folder.mkdir()
    run_time.mkdir(mode=0o700)
    first_hour.build_wheels(wheels, first_hour.distributions())
    try:
        done = first_hour.first_hour(wheels, "penstock", folder, run_time)
    except RuntimeError as error:
        skip_without_dependencies(str(error))
        raise
    assert done.printed.endswith("completed 6\n")
    assert len(done.steps) <= 12
    assert not list((folder / ".venv").glob("lib/*/site-packages/pyspark"))

    place = json.loads((folder / ".penstock" / "broker.json").read_text())
    newcomer = first_hour.Newcomer(folder, run_time)
    with newcomer.keeps("penstock", "up", "--no-live"):
        url = (folder / ".penstock" / "nats-url").read_text().splitlines()[0]
        assert url == f"nats://{place['token']}@127.0.0.1:{place['port']}"
        assert newcomer.types("python", "client.py").endswith("completed 6\n")
