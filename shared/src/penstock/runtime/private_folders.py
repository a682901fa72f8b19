"""Folders of this user alone, in places such as the temporary folder where others may write too.

What another user could exchange is not trusted: every component of a path is opened from the folder
above it and checked there, and links that another user may have set are not followed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from contextlib import ExitStack, suppress
from pathlib import Path

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAX_LINKS = 40


class NotPrivate(PermissionError):
    """A folder that another user made, may write to, or could exchange for another."""


def private_dir(place: Path, *names: str) -> Path:
    """``place/name/…``, made where it is not there.

    Once returned, the path may be used as it stands: no other user but root can exchange one of its
    components, since each lies in a folder that others cannot write to, or in a sticky one such as
    ``/tmp`` and belongs to this user or to root. Groups of a folder above ``names`` are trusted.

    Args:
        place: the folder to make ``names`` in. Missing parts are made for this user alone.
        names: each below the one before; a folder, no link, of this user, writable by no other.

    Raises:
        NotPrivate: one of them is not as it must be; the text names its owner.
        OSError: one cannot be made.
    """
    with ExitStack() as opened:
        _open(opened, place, names)
    return place.joinpath(*names)


def remove_private(place: Path, *names: str) -> None:
    """Removes the last folder with what is in it; not where :func:`private_dir` would refuse."""
    with suppress(OSError), ExitStack() as opened:
        above = _open(opened, place, names[:-1])
        shutil.rmtree(names[-1], ignore_errors=True, dir_fd=above)


def _open(opened: ExitStack, place: Path, names: tuple[str, ...]) -> int:
    """A descriptor of the last folder, closed with ``opened``."""
    folder, path = _follow(opened, place)
    for name in names:
        folder, path = _below(opened, folder, path, name)
        _check_own(folder, path)
    return folder


def _follow(opened: ExitStack, place: Path) -> tuple[int, Path]:
    """Follows links where only root or this user can have set them."""
    folder, path = _root(opened)
    ahead, links = list(place.absolute().parts[1:]), 0
    while ahead:
        name = ahead.pop(0)
        target = _link(folder, path, name)
        if target is None:
            folder, path = _below(opened, folder, path, name)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise NotPrivate(f"{place}: more than {_MAX_LINKS} links on the way")
        ahead = [*Path(os.path.normpath(path / target)).parts[1:], *ahead]
        folder, path = _root(opened)
    return folder, path


def _root(opened: ExitStack) -> tuple[int, Path]:
    root = os.open("/", _FOLDER)
    opened.callback(os.close, root)
    return root, Path("/")


def _link(folder: int, path: Path, name: str) -> str | None:
    """Where the entry ``name`` leads; None if it is no link. Raises NotPrivate."""
    try:
        entry = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(entry.st_mode):
        return None
    _check_entry(folder, path / name, entry)
    return os.readlink(name, dir_fd=folder)


def _below(opened: ExitStack, folder: int, path: Path, name: str) -> tuple[int, Path]:
    """The folder ``name`` in ``folder``, made where it is not there."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=folder)
    try:
        below = os.open(name, _FOLDER, dir_fd=folder)
    except NotADirectoryError:
        raise _not_private(path / name, os.lstat(name, dir_fd=folder)) from None
    opened.callback(os.close, below)
    _check_entry(folder, path / name, os.fstat(below))
    return below, path / name


def _check_entry(folder: int, path: Path, entry: os.stat_result) -> None:
    """No other user can exchange what is in ``folder`` as ``path``."""
    above = os.fstat(folder)
    if not above.st_mode & stat.S_IWOTH:
        return
    if not above.st_mode & stat.S_ISVTX:
        raise NotPrivate(
            f"{path.parent}: everybody may exchange what is in it (mode "
            f"{stat.S_IMODE(above.st_mode):o}, not sticky); {_REMEDY}"
        )
    if entry.st_uid not in (0, os.getuid()):
        raise _not_private(path, entry)


def _check_own(folder: int, path: Path) -> None:
    entry = os.fstat(folder)
    if entry.st_uid != os.getuid() or entry.st_mode & _OTHERS_WRITE:
        raise _not_private(path, entry)


_REMEDY = (
    "remove it, or name a folder of your own with host.run_dir or XDG_RUNTIME_DIR (environment)"
)


def _not_private(path: Path, entry: os.stat_result) -> NotPrivate:
    kind = "folder" if stat.S_ISDIR(entry.st_mode) else "link or file"
    return NotPrivate(
        f"{path}: expected a folder that only user {_user(os.getuid())} may write to, found a "
        f"{kind} of user {_user(entry.st_uid)}, mode {stat.S_IMODE(entry.st_mode):o}; {_REMEDY}"
    )


def _user(number: int) -> str:
    try:
        return f"{number} ({pwd.getpwuid(number).pw_name})"
    except KeyError:
        return str(number)
