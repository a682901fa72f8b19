"""From an empty folder to the first job's result, as a newcomer does it. Prints JSON.

The commands are those of docs/first-project.md: an environment, `pip install` from wheels that were
built before, `penstock init`, `penstock up`, `python client.py`. Dependencies come from where pip
is configured to find them; its cache is used as it is. What is timed is each command, and for
`penstock up` the time until programs can reach its broker.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from machine import describe
from penstock.runtime import children
from penstock.runtime.children import Child
from penstock.runtime.local_broker import URL_FILE
from penstock.runtime.paths import temporary_dir

ROOT = Path(__file__).resolve().parent.parent
PYTHON = getattr(sys, "_base_executable", sys.executable)
"""The machine's, whose packages are not this environment's."""
VERSION = "0.1.0"
UP_SECONDS = 120.0
_END_SECONDS = 60.0


class Step(msgspec.Struct, frozen=True):
    """A command that a newcomer types, and how long it took."""

    command: str
    seconds: float


class FirstHour(msgspec.Struct, frozen=True, kw_only=True):
    """One way from an empty folder to a result.

    Attributes:
        steps: commands, in order.
        printed: what the program printed.
        packages: that pip installed.
        megabytes: of the environment, without pip and setuptools.
    """

    steps: tuple[Step, ...]
    printed: str
    packages: int
    megabytes: float


class Newcomer:
    """A shell in a folder, without the variables of this one's environment.

    Args:
        folder: empty.
        run_time: a short folder for sockets.
    """

    def __init__(self, folder: Path, run_time: Path) -> None:
        self.folder = folder
        foreign = ("PENSTOCK_", "PYTHON", "VIRTUAL_ENV")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
        kept["XDG_RUNTIME_DIR"] = str(run_time)
        self._variables = [f"{name}={text}" for name, text in kept.items()]
        self.steps: list[Step] = []

    def types(self, *words: str) -> str:
        """Runs a command to its end; returns what it printed on standard output."""
        began = time.monotonic()
        done = subprocess.run(
            self._path(words),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        self._timed(words, began)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    @contextmanager
    def keeps(self, *words: str) -> Iterator[Child]:
        """A `penstock up` that runs during the block, from when programs can reach its broker."""
        began = time.monotonic()
        up = children.start(
            self._path(words),
            name="up",
            cwd=self.folder,
            log=self.folder / "up.log",
        )
        try:
            address = self.folder / ".penstock" / URL_FILE
            children.wait_until(up, address.exists, UP_SECONDS, "reachable")
            self._timed((*words, "&"), began)
            yield up
        finally:
            up.end(_END_SECONDS)

    def _path(self, words: Sequence[str]) -> list[str]:
        """The environment's programs, as if it were activated; before it is made, `python3`."""
        beside = self.folder / ".venv" / "bin" / words[0]
        program = str(beside) if beside.exists() else PYTHON
        return ["env", "-i", *self._variables, program, *words[1:]]

    def _timed(self, words: Sequence[str], began: float) -> None:
        self.steps.append(Step(" ".join(words), round(time.monotonic() - began, 2)))


def wheel_of(package: str, wheels: str) -> str:
    """The path of a distribution's wheel, with the extras that are asked for.

    By its path, since on PyPI the name `penstock` is another project's.

    Args:
        package: such as ``penstock`` or ``penstock[spark]``.
        wheels: folder of the wheels.
    """
    name, bracket, extras = package.partition("[")
    return f"{wheels}/{name.replace('-', '_')}-{VERSION}-py3-none-any.whl{bracket}{extras}"


def build_wheels(place: Path, folders: Sequence[str]) -> None:
    """Builds distributions of this clone as `make wheels` does, into ``place``.

    From copies: setuptools leaves what it builds in the folder of the source.
    """
    with temporary_dir() as copies:
        for folder in folders:
            ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
            shutil.copytree(ROOT / folder, copies / folder, ignore=ignored)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        options = ["--no-build-isolation", "--disable-pip-version-check", "--wheel-dir", str(place)]
        subprocess.run([*command, *options, *folders], cwd=copies, check=True, capture_output=True)


def distributions() -> list[str]:
    """The folders of all distributions, as the Makefile names them."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    line = next(line for line in makefile.splitlines() if line.startswith("PACKAGES := "))
    return [f"./{folder}" for folder in line.removeprefix("PACKAGES := ").split()]


def installed(environment: Path) -> tuple[int, float]:
    """Packages and megabytes of a virtual environment, without pip and setuptools."""
    [packages] = environment.glob("lib/python*/site-packages")
    own = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
    names = [path for path in packages.iterdir() if not path.name.startswith(own)]
    size = sum(
        file.stat().st_size for path in names for file in [path, *path.rglob("*")] if file.is_file()
    )
    count = sum(1 for path in names if path.suffix == ".dist-info")
    return count, round(size / 1e6, 1)


def first_hour(wheels: Path, package: str, folder: Path, run_time: Path) -> FirstHour:
    """Goes the whole way once.

    Args:
        wheels: folder of Penstock's own wheels.
        package: what is installed, such as ``penstock``.
        folder: empty.
        run_time: a short folder for sockets.

    Raises:
        RuntimeError: a command failed, with what it printed.
    """
    newcomer = Newcomer(folder, run_time)
    place = os.path.relpath(wheels, folder)
    newcomer.types("python3", "-m", "venv", ".venv")
    wheel = wheel_of(package, place)
    newcomer.types("pip", "install", "--quiet", "--find-links", place, wheel)
    newcomer.types("penstock", "init")
    with newcomer.keeps("penstock", "up", "--no-live"):
        printed = newcomer.types("python", "client.py")
    packages, megabytes = installed(folder / ".venv")
    return FirstHour(
        steps=tuple(newcomer.steps), printed=printed, packages=packages, megabytes=megabytes
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--package", default="penstock")
    arguments = parser.parse_args()
    machine, runs = describe(), []
    with temporary_dir() as place:
        build_wheels(place / "dist", distributions())
        for number in range(arguments.runs):
            folder, run_time = place / f"shop{number}", place / f"r{number}"
            folder.mkdir()
            run_time.mkdir(mode=0o700)
            runs.append(first_hour(place / "dist", arguments.package, folder, run_time))
    sys.stdout.write(json.dumps(report(machine, runs), indent=2) + "\n")


def report(machine: Mapping[str, Any], runs: Sequence[FirstHour]) -> dict[str, Any]:
    """What is printed: seconds by command, of all runs, and in all."""
    by_command = zip(*(run.steps for run in runs), strict=True)
    return {
        "machine": machine,
        "packages": runs[0].packages,
        "megabytes": runs[0].megabytes,
        "commands": len(runs[0].steps),
        "seconds": [round(sum(step.seconds for step in run.steps), 1) for run in runs],
        "steps": [
            {"command": steps[0].command, "seconds": [step.seconds for step in steps]}
            for steps in by_command
        ],
    }


if __name__ == "__main__":
    main()
