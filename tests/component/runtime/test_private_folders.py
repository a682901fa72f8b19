"""Folders of one user where others may write too: what another prepared there is refused."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - another user may not read the interpreter's files later
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.up.command import Options, _prepared
from penstock.config.load import check
from penstock.runtime.private_folders import NotPrivate, private_dir, remove_private

VICTIM, ATTACKER = 65_001, 65_002  # no accounts of this machine
MINE = f"penstock-{VICTIM}"


@pytest.fixture
def shared_place() -> Iterator[Path]:
    """A folder as ``/tmp`` is: everybody may write, nobody may exchange what is another's."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-shared-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root can act as two users; run as root to see it"
)


def as_user(user: int, work: Callable[[], object]) -> str:
    """The text of what ``work`` raises in a process of ``user``; empty if it raises nothing."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            work()
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as result:
        text = result.read().decode()
    os.waitpid(child, 0)
    return text


def open_folder(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


@needs_root
def test_a_folder_that_another_user_made_first_is_refused_by_name_of_its_owner(
    shared_place: Path,
) -> None:
    assert as_user(ATTACKER, lambda: open_folder(shared_place / MINE)) == ""
    refused = as_user(VICTIM, lambda: private_dir(shared_place, MINE, "up-1"))
    assert f"found a folder of user {ATTACKER}, mode 777" in refused
    assert str(shared_place / MINE) in refused
    assert not (shared_place / MINE / "up-1").exists()


@needs_root
def test_a_link_that_another_user_set_is_not_followed(shared_place: Path) -> None:
    own = shared_place / "own"
    assert as_user(VICTIM, lambda: own.mkdir(mode=0o700)) == ""
    as_user(ATTACKER, lambda: (shared_place / MINE).symlink_to(own))
    refusals = [
        as_user(VICTIM, lambda: private_dir(shared_place, MINE, "up-1")),
        as_user(VICTIM, lambda: private_dir(shared_place / MINE, "up-1")),  # host.run_dir
    ]
    assert all(f"found a link or file of user {ATTACKER}" in text for text in refusals)
    assert list(own.iterdir()) == []


@needs_root
def test_nothing_is_removed_by_way_of_another_users_folder(shared_place: Path) -> None:
    treasure = shared_place / "own" / "up-1"
    as_user(VICTIM, lambda: treasure.mkdir(parents=True))
    as_user(ATTACKER, lambda: (shared_place / MINE).symlink_to(treasure.parent))
    as_user(VICTIM, lambda: remove_private(shared_place, MINE, "up-1"))
    assert treasure.is_dir()
    as_user(VICTIM, lambda: remove_private(shared_place, "own", "up-1"))
    assert not treasure.exists()


@needs_root
def test_up_does_not_start_in_a_run_folder_that_another_user_prepared(
    shared_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(shared_place))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    as_user(ATTACKER, lambda: open_folder(shared_place / MINE))
    home = shared_place / "home"
    as_user(VICTIM, lambda: home.mkdir(mode=0o700))
    settings = check({"nats": {"url": "nats://127.0.0.1:4222"}})

    def up() -> None:
        os.chdir(home)
        with _prepared(settings, Options(live=False, ephemeral=False, port=None)):
            raise AssertionError("it would start its services now")

    refused = as_user(VICTIM, up)
    assert refused.startswith(f"NotPrivate: {shared_place / MINE}: expected a folder that only")
    assert f"found a folder of user {ATTACKER}, mode 777" in refused


@needs_root
def test_a_folder_of_ones_own_is_made_and_found_again_in_a_shared_place(shared_place: Path) -> None:
    def twice() -> None:
        made = private_dir(shared_place, MINE, "up-1")
        (made / "record").touch()
        assert private_dir(shared_place, MINE, "up-1") == made

    assert as_user(VICTIM, twice) == ""
    assert (shared_place / MINE).stat().st_mode & 0o777 == 0o700
    refused = as_user(ATTACKER, lambda: (shared_place / MINE).rename(shared_place / "away"))
    assert refused.startswith("PermissionError")


def test_a_place_where_everybody_may_exchange_everything_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "place"
    open_folder(place)
    with pytest.raises(NotPrivate, match="not sticky"):
        private_dir(place, "mine")


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_of_ones_own_that_others_may_write_to_is_refused(
    tmp_path: Path, mode: int
) -> None:
    private_dir(tmp_path, "mine").chmod(mode)
    with pytest.raises(NotPrivate, match=f"mode {mode:o}; remove it"):
        private_dir(tmp_path, "mine", "below")


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(NotPrivate, match="found a link or file"):
        private_dir(tmp_path, "mine")


def test_links_above_that_nobody_else_can_set_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("../" + tmp_path.name + "/real")
    (tmp_path / "loop").symlink_to("loop")
    assert private_dir(tmp_path / "link" / "new", "mine").is_dir()
    assert (tmp_path / "real" / "new" / "mine").is_dir()
    with pytest.raises(NotPrivate, match="more than 40 links"):
        private_dir(tmp_path / "loop", "mine")
