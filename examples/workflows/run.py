"""`make workflow-example`: a Spark pipeline as two workflows, a file and a coroutine.

Starts `penstock up` in a temporary folder and types there what a user would, for half a minute.
Exit code 0 only if every workflow completed.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from penstock.config import ConfigError
from penstock.runtime import children
from penstock.runtime.children import Child, ChildFailed
from penstock.runtime.local_broker import find_url
from penstock.runtime.paths import temporary_dir

HERE = Path(__file__).resolve().parent
FILES = ("penstock.toml", "sales.py", "daily_sales.toml")
CLEAN_DAY, DAMAGED_DAY = "2026-11-20", "2026-11-21"
DAMAGED_EVERY = {CLEAN_DAY: 50, DAMAGED_DAY: 3}
"""Which rows of a day lack a price."""
START_SECONDS, WITHIN_SECONDS = 60.0, 120.0
END_SECONDS = 60.0
FAILED, INTERRUPTED = 1, 130


class CommandFailed(RuntimeError):
    """A command ended with an exit code that this example does not expect."""


class Shell:
    """A terminal in the folder of the example.

    Args:
        folder: with the settings, the jobs and the definition.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.argv = [sys.executable, "-m", "penstock.cli.main"]

    def type(self, *words: str) -> None:
        """Prints a command and what it prints. Raises CommandFailed."""
        print(f"\n$ penstock {shlex.join(words)}", flush=True)
        self._run(words)

    def ask(self, *words: str) -> Any:
        """What a command answers as JSON. Raises CommandFailed."""
        return json.loads(self._run([*words, "--json"], stdout=subprocess.PIPE).stdout)

    def _run(
        self, words: Sequence[str], stdout: int | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        argv = [*self.argv, *words]
        done = subprocess.run(argv, cwd=self.folder, stdout=stdout, check=False)
        if done.returncode:
            command = f"penstock {shlex.join(words)}"
            raise CommandFailed(f"{command!r} ended with exit code {done.returncode}")
        return done


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        del os.environ[name]  # the settings are those of the folder alone
    try:
        with temporary_dir() as folder:
            for name in FILES:
                shutil.copy(HERE / name, folder)
            shell = Shell(folder)
            with _up(shell) as up:
                _declared(shell)
                _coded(shell, up)
    except KeyboardInterrupt:
        print("interrupted; everything has ended")
        return INTERRUPTED
    except (ChildFailed, CommandFailed) as error:
        print(f"The example failed: {error}", file=sys.stderr)
        return FAILED
    return 0


def _declared(shell: Shell) -> None:
    """One file, run for a clean day and for one that is put aside."""
    _title("A declared workflow: daily_sales.toml")
    shell.type("workflow", "check", "daily_sales.toml")
    shell.type("workflow", "define", "daily_sales.toml")
    for day, every in DAMAGED_EVERY.items():
        context = (f"lake={shell.folder}/lake", f"day={day}", f"damaged_every={every}")
        arguments = [word for value in context for word in ("--arg", value)]
        shell.type("workflow", "run", "daily_sales", "--id", f"sales-{day}", *arguments)
        shell.type("graph", "show", f"sales-{day}")


def _coded(shell: Shell, up: Child) -> None:
    """Both days beside each other; the damaged one waits until a person accepts it."""
    _title("A coded workflow: sales.close_days")
    days = msgspec.json.encode(DAMAGED_EVERY).decode()
    arguments = ("--arg", f"lake={shell.folder}/lake-of-days", "--arg", f"damaged_every={days}")
    shell.type("workflow", "run", "sales.close_days", "--id", "days", *arguments, "--no-wait")
    accept = f"accept-{DAMAGED_DAY}"
    _await(up, lambda: accept in shell.ask("workflow", "show", "days")["workflow"]["waits_for"])
    shell.type("workflow", "show", "days")
    shell.type("workflow", "signal", "days", accept, "true")
    shell.type("workflow", "wait", "days")


@contextmanager
def _up(shell: Shell) -> Iterator[Child]:
    """`penstock up`, reachable; ended in order."""
    argv = [*shell.argv, "up", "--no-live", "--ephemeral"]
    log = shell.folder / "up.log"
    up = children.start(argv, name="penstock up", log=log, cwd=shell.folder)
    try:
        children.wait_until(up, lambda: _is_reachable(shell.folder), START_SECONDS, "is not ready")
        yield up
    finally:
        up.end(END_SECONDS)


def _is_reachable(folder: Path) -> bool:
    try:
        return bool(find_url(folder / ".penstock"))
    except ConfigError:
        return False


def _await(up: Child, condition: Callable[[], bool]) -> None:
    children.wait_until(up, condition, WITHIN_SECONDS, "runs a workflow that does not get on")


def _title(text: str) -> None:
    print(f"\n# {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
