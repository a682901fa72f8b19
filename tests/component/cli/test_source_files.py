"""Which files `penstock up --reload` looks at, and what it notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.up.source_files import SourceFiles


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("shop/jobs.py", "shop/mail/send.py", ".venv/lib/x.py", "shop/__pycache__/y.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    (tmp_path / "shop/__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "tasks.py").write_text("raise SystemExit('imported')")
    (tmp_path / "env").mkdir()
    (tmp_path / "env/pyvenv.cfg").write_text("")
    (tmp_path / "env/z.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_package_with_all_below_it(project: Path) -> None:
    files = SourceFiles(["shop.jobs"])
    assert files.folders == [project / "shop"]
    assert files.changed() == []
    (project / "shop/mail/send.py").write_text("22")
    (project / "shop/new.py").write_text("")
    (project / "shop/jobs.py").unlink()
    (project / "tasks.py").write_text("")
    changed = files.changed()
    assert changed == [project / "shop" / name for name in ("jobs.py", "mail/send.py", "new.py")]
    assert files.changed() == []


def test_a_module_with_what_lies_beside_it(project: Path) -> None:
    files = SourceFiles(["tasks"])
    for name in ("tasks.py", "shop/jobs.py", ".venv/lib/x.py", "env/z.py", "shop/__pycache__/y.py"):
        (project / name).write_text("changed")
    assert files.changed() == [project / "shop/jobs.py", project / "tasks.py"]


def test_a_module_that_is_not_there(project: Path) -> None:
    files = SourceFiles(["nothing_of_this_name"])
    assert (files.folders, files.changed()) == ([], [])
