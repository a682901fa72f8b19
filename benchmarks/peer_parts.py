"""What the benchmark of peers needs around it: environments, brokers, processes. All its own, in
one folder that can be deleted, on loopback ports that were free."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from peer_setups import RELIABLE, Setup
from penstock.runtime.broker import Broker
from penstock.runtime.children import Child, start, wait_until
from penstock.runtime.paths import LOOPBACK, free_port, temporary_dir

APPS = Path(__file__).parent / "peers"
_DEBIAN = ("redis-server", "redis-tools", "libatomic1", "libjemalloc2", "liblzf1")
_START_SECONDS = 20.0
_VERSIONS = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""


# --- programs ------------------------------------------------------------------------------------
def environment(cache: Path, peer: str) -> Path:
    """The folder of a peer's programs; made at first use, from its lock file and nothing else."""
    if peer == "penstock":
        return Path(sys.executable).parent
    lock = APPS / f"requirements-{peer}.lock"
    home = cache / f"{peer}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    ready = home / ".ready"
    if not ready.exists():
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "-r", str(lock)], check=True)
        ready.touch()
    return home / "bin"


def redis_server(cache: Path) -> tuple[Path, dict[str, str]]:
    """Redis and what it needs in its environment: the machine's, else Debian's packages, unpacked
    in the cache and not installed."""
    if found := shutil.which("redis-server"):
        return Path(found), {}
    root = cache / "redis"
    server = root / "usr" / "bin" / "redis-server"
    if not server.exists():
        root.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", *_DEBIAN], cwd=root, check=True, stdout=sys.stderr)
        for package in root.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)
    libraries = next((root / "usr" / "lib").glob("*-linux-gnu"))
    return server, {"LD_LIBRARY_PATH": str(libraries)}


def versions(programs: Path, packages: Sequence[str]) -> dict[str, str]:
    said = subprocess.run(
        [str(programs / "python"), "-c", _VERSIONS, *packages], check=True, capture_output=True
    )
    found: dict[str, str] = json.loads(said.stdout)
    return found


# --- brokers -------------------------------------------------------------------------------------
class _SyncedBroker(Broker):
    """As ours, with files synced every second."""

    def _config(self) -> str:
        settings = json.loads(super()._config())
        settings["jetstream"]["sync_interval"] = "1s"
        return json.dumps(settings)


@contextmanager
def _redis(cache: Path, mode: str) -> Iterator[tuple[str, int]]:
    server, env = redis_server(cache)
    with temporary_dir() as folder:
        port = free_port()
        keep = ["--appendonly", "yes", "--appendfsync", "everysec"] if mode == RELIABLE else []
        where = ["--bind", LOOPBACK, "--port", str(port), "--dir", str(folder)]
        child = start([str(server), *where, *keep], name="redis", log=folder / "redis.log", env=env)
        try:
            wait_until(child, lambda: _listens(port), _START_SECONDS, "listening")
            yield f"redis://{LOOPBACK}:{port}", child.pid
        finally:
            child.end()


@contextmanager
def broker(cache: Path, setup: Setup) -> Iterator[tuple[str, int]]:
    """A fresh one: its address and process id."""
    if setup.broker == "redis":
        with _redis(cache, setup.mode) as found:
            yield found
    else:
        with (_SyncedBroker if setup.mode == RELIABLE else Broker)() as nats:
            assert nats.child
            yield nats.url, nats.child.pid


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex((LOOPBACK, port)) == 0


# --- workers and measurements --------------------------------------------------------------------
@contextmanager
def workers(
    programs: Path, commands: Sequence[Sequence[str]], env: dict[str, str]
) -> Iterator[list[Child]]:
    with ExitStack() as open_, temporary_dir() as folder:
        running = []
        for number, (program, *rest) in enumerate(commands):
            child = start(
                [str(programs / program), *(part.format(url=env["PEERS_URL"]) for part in rest)],
                name=program,
                log=folder / f"{number}.log",
                env=env,
                cwd=APPS,
            )
            open_.callback(_end, child)
            running.append(child)
        yield running


def _end(child: Child) -> None:
    """The process, and what it started and has left behind."""
    with suppress(psutil.NoSuchProcess):
        theirs = tree([child.pid])
        child.end(10.0)
        for left in psutil.wait_procs(theirs, 1.0)[1]:
            with suppress(psutil.NoSuchProcess):
                left.kill()


def drive(programs: Path, env: dict[str, str], *arguments: str) -> dict[str, Any]:
    said = subprocess.run(
        [str(programs / "python"), str(APPS / "drive.py"), *arguments],
        env={**os.environ, **env},
        cwd=APPS,
        capture_output=True,
        check=False,
        timeout=600,
    )
    if said.returncode:
        raise RuntimeError(f"drive.py {arguments}: {said.stderr.decode()[-2000:]}")
    found: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return found


def tree(pids: Sequence[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        one = psutil.Process(pid)
        found += [one, *one.children(recursive=True)]
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """Of processes, those they started, and those of these that have ended."""
    total = 0.0
    for one in tree(pids):
        with suppress(psutil.NoSuchProcess):  # ended just now: its parent has its time
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def memory_mib(pids: Sequence[int]) -> float:
    """Proportional set size: what processes share is counted once."""
    time.sleep(0.5)  # what has just ended is gone
    total = 0
    for one in tree(pids):
        with suppress(psutil.NoSuchProcess):
            total += one.memory_full_info().pss
    return total / 2**20
