"""The last reload of a host, in its run folder: what a restarted executor continues."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.events.reloading import ReloadState

log = logging.getLogger("penstock.executor")

_FILE = "reload.json"


class ReloadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One reload.

    Attributes:
        id: of the request.
        pools: whose workers are replaced; none for all.
        workers: that it replaces; 0 before that is known.
        error: why it failed.
        earlier: ids of reloads before it.
    """

    id: str
    pools: tuple[str, ...] = ()
    state: ReloadState = "importing"
    workers: int = 0
    error: str = ""
    earlier: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether something is left to do."""
        return self.state in ("importing", "replacing")


def read(run_dir: Path) -> ReloadRecord | None:
    """The last reload; None where there was none."""
    try:
        return msgspec.json.decode((run_dir / _FILE).read_bytes(), type=ReloadRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("%s: no readable record of a reload: %s", run_dir / _FILE, error)
        return None


def write(run_dir: Path, record: ReloadRecord) -> None:
    """Stores a record, whole or not at all. A full disk costs its continuation after a restart."""
    half = run_dir / f".{_FILE}.new"
    with suppress(OSError):
        half.write_bytes(msgspec.json.encode(record))
        half.replace(run_dir / _FILE)
