"""`penstock init`: a project that works as it is, and nothing that is overwritten."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from penstock.cli.project import files
from penstock.config import load
from penstock.config.topology import pools

FILES = ["penstock.toml", "jobs.py", "client.py", "test_jobs.py", "penstock.service", ".gitignore"]


def unit(folder: Path) -> RawConfigParser:
    parsed = RawConfigParser(strict=True)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(folder / "penstock.service")
    return parsed


def test_a_project_is_made_and_its_settings_are_valid(penstock, tmp_path: Path) -> None:
    made = penstock("init", "shop", "--json")
    assert made.exit_code == 0
    assert json.loads(made.stdout) == {"folder": str(tmp_path / "shop"), "files": FILES}
    settings = load(tmp_path / "shop" / "penstock.toml")
    assert (list(pools(settings)), settings.jobs.modules) == (["default"], ("jobs",))


def test_its_own_test_passes(penstock, tmp_path: Path) -> None:
    made = penstock("init")
    assert "next: penstock up; in another terminal of that folder: python client.py" in made.stderr
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in tests.stdout, tests.stdout + tests.stderr
    assert "Warning" not in tests.stdout + tests.stderr


@pytest.mark.parametrize("url", ["", "nats://127.0.0.1:1"])
def test_its_program_names_a_missing_broker_in_one_line(penstock, tmp_path: Path, url: str) -> None:
    penstock("init")
    nowhere = {"PENSTOCK_NATS__URL": url, "PENSTOCK_NATS__CONNECT_TIMEOUT_SECONDS": "0.1"}
    program = subprocess.run(
        [sys.executable, "client.py"],
        cwd=tmp_path,
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (program.returncode, program.stdout) == (1, "")
    assert re.fullmatch(r"client\.py: .*(broker|NATS server).*\n", program.stderr), program.stderr


@pytest.mark.parametrize("there", ["jobs.py", "penstock.toml"])
def test_what_is_there_is_not_overwritten_and_nothing_is_written(penstock, tmp_path, there) -> None:
    (tmp_path / there).symlink_to("nowhere")
    refused = penstock("init")
    assert refused.exit_code == 2
    assert f"has {there} already, and nothing is overwritten" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == [there]


def test_a_gitignore_that_is_there_is_kept(penstock, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n")
    made = penstock("init")
    assert made.exit_code == 0
    assert ".gitignore is kept as it is; add the line .penstock/ to it" in made.stderr
    assert (tmp_path / ".gitignore").read_text() == "*.log\n"


def test_a_folder_that_cannot_be_written_is_named(penstock, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = penstock("init", "file/shop")
    assert refused.exit_code == 1
    assert "file/shop cannot be written: Not a directory" in refused.stderr


def test_the_unit_starts_up_in_the_folder_whatever_its_name(penstock, tmp_path: Path) -> None:
    penstock("init", "50% off")
    folder = tmp_path / "50% off"
    service = unit(folder)["Service"]
    assert service["WorkingDirectory"] == str(folder).replace("%", "%%")
    assert service["ExecStart"].endswith(" up --no-live")
    assert Path(service["ExecStart"].split()[0]).parent == Path(sys.executable).parent
    if analyze := shutil.which("systemd-analyze"):
        verified = subprocess.run(
            [analyze, "verify", str(folder / "penstock.service")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert verified.returncode == 0, verified.stderr


def test_a_command_with_blanks_and_signs_is_quoted_for_systemd(monkeypatch, tmp_path) -> None:
    python = tmp_path / 'a "$x" 5%' / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.with_name("penstock").touch()
    monkeypatch.setattr(sys, "executable", str(python))
    text = files.texts(tmp_path)["penstock.service"]
    place = str(tmp_path).replace("%", "%%")
    assert f'ExecStart="{place}/a \\"$$x\\" 5%%/bin/penstock" up --no-live\n' in text


@pytest.mark.parametrize(
    ("folder", "reason"), [("a\nb", "has control characters"), ("a\\", "ends in a backslash")]
)
def test_a_path_that_cannot_stand_in_a_unit_is_refused(penstock, folder, reason) -> None:
    refused = penstock("init", folder)
    assert refused.exit_code == 2
    assert f"{reason}; choose another folder" in refused.stderr
    assert not os.path.lexists(folder)
