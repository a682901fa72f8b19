"""Run folders are private; temporary ones do not stay behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from penstock.config.load import check
from penstock.runtime.paths import free_port, run_dir, temporary_dir


def test_a_run_folder_is_made_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found = run_dir(check({"host": {"name": "h"}}))
    assert found == run_dir(check({"host": {"name": "h"}}))
    assert found != run_dir(check({"prefix": "other", "host": {"name": "h"}}))
    assert found.stat().st_mode & 0o777 == 0o700


def test_a_run_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "run"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(PermissionError, match="expected a folder that only user"):
        run_dir(check({"host": {"run_dir": str(place)}}))


def test_projects_with_the_same_relative_run_folder_know_their_processes_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []
    for project in ("one", "other"):
        (tmp_path / project).mkdir()
        monkeypatch.chdir(tmp_path / project)
        folders.append(run_dir(check({"host": {"run_dir": "run"}})))
    # Foreign workers are found again, and ended, by this path in their environment.
    assert folders == [tmp_path / "one" / "run", tmp_path / "other" / "run"]


def test_a_temporary_folder_is_gone_afterwards() -> None:
    with pytest.raises(RuntimeError), temporary_dir() as folder:
        (folder / "file").write_text("x")
        raise RuntimeError
    assert not folder.exists()


def test_what_a_killed_owner_left_is_swept_and_what_is_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "penstock-left"
    left.mkdir()
    (left / ".owner").touch()
    with temporary_dir() as used, temporary_dir() as other:
        assert not left.exists()
        assert used.is_dir()
        assert other.is_dir()


def test_sweeping_follows_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may make entries of these names in the temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lock, elsewhere = tmp_path / "a-lock", tmp_path / "elsewhere"
    lock.touch()
    elsewhere.mkdir()
    (elsewhere / ".owner").touch()
    forged = tmp_path / "penstock-forged"
    forged.mkdir()
    (forged / ".owner").symlink_to(lock)
    (tmp_path / "penstock-link").symlink_to(elsewhere)
    with temporary_dir():
        assert forged.is_dir()
        assert (elsewhere / ".owner").exists()


def test_a_free_port_is_one() -> None:
    assert 1024 < free_port() < 65536
