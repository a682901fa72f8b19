"""`make celery-example`: an unmodified Celery app, whose workers Penstock starts when tasks wait.

Copies the files beside it into a temporary folder, starts Redis and `penstock up` there and sends
twenty tasks. Exit code 0 only if all of them were handled.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from penstock.config import ConfigError
from penstock.runtime import children
from penstock.runtime.children import ChildFailed
from penstock.runtime.local_broker import find_url
from penstock.runtime.paths import free_port, temporary_dir

HERE = Path(__file__).resolve().parent
FILES = ("penstock.toml", "send.py", "tasks.py")
REDIS_PORT = "6379"
"""In the files; another one takes its place, so that a Redis that runs already is left alone."""
START_SECONDS, SEND_SECONDS, END_SECONDS = 60.0, 150.0, 70.0
FAILED, INTERRUPTED = 1, 130


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--celery-env", type=Path, help="an environment with celery[redis]")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with temporary_dir() as folder:
            return _run(folder, options.celery_env)
    except KeyboardInterrupt:
        print("interrupted; everything has ended")
        return INTERRUPTED
    except (ChildFailed, OSError, subprocess.SubprocessError) as error:
        print(f"The example failed: {error}", file=sys.stderr)
        return FAILED


def _run(folder: Path, celery_env: Path | None) -> int:
    if not shutil.which("redis-server"):
        raise FileNotFoundError("redis-server is not on PATH: install Redis")
    port = free_port()
    for name in FILES:
        text = (HERE / name).read_text()
        (folder / name).write_text(text.replace(REDIS_PORT, str(port)))
    _make_celery_env(folder / "celery-env", celery_env)
    server = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    redis = children.start(server, name="redis-server", log=folder / "redis.log", cwd=folder)
    try:
        penstock = [sys.executable, "-m", "penstock.cli.main"]
        up = children.start(
            [*penstock, "up", "--no-live", "--ephemeral"],
            name="penstock up", log=folder / "up.log", cwd=folder,
        )  # fmt: skip
        try:
            children.wait_until(up, lambda: _is_reachable(folder), START_SECONDS, "is not ready")
            for command in (["celery-env/bin/python", "send.py"], [*penstock, "pool", "ls"]):
                subprocess.run(command, cwd=folder, check=True, timeout=SEND_SECONDS)
        finally:
            up.end(END_SECONDS)
    finally:
        redis.end()
    return 0


def _make_celery_env(folder: Path, existing: Path | None) -> None:
    if existing is not None:
        folder.symlink_to(existing.resolve(), target_is_directory=True)
        return
    print("installing celery[redis] into an environment of its own", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "celery[redis]"], check=True)


def _is_reachable(folder: Path) -> bool:
    try:
        return bool(find_url(folder / ".penstock"))
    except ConfigError:
        return False


if __name__ == "__main__":
    sys.exit(main())
