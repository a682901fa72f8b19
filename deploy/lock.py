"""Writes requirements-ROLE.lock: the packages of one image, out of requirements.lock.

python deploy/lock.py            writes them (needs the virtual environment of `make install`)
python deploy/lock.py --check    compares; exit code 1 when one is out of date
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
ROLES = {
    "metrics": ("shared", "cli", "services/metrics[kafka,rabbitmq,redis,sql,sqs]"),
    "decider": ("shared", "cli", "services/decider"),
    "orchestrator": ("shared", "cli", "services/orchestrator"),
    "console": ("shared", "cli", "services/console", "services/decider"),
    "executor": ("shared", "cli", "services/executor", "services/worker[spark]"),
}
IMAGE = {
    "python_version": "3.11",
    "python_full_version": "3.11.2",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}
NOTE = "# Made by deploy/lock.py from requirements.lock; `make lock` writes it anew.\n"


def main(arguments: list[str]) -> int:
    blocks = locked((HERE.parent / "requirements.lock").read_text("utf-8"))
    stale = []
    for role, folders in ROLES.items():
        path = HERE / f"requirements-{role}.lock"
        text = NOTE + "".join(blocks[name] for name in sorted(closure(wanted(folders))))
        if arguments != ["--check"]:
            path.write_text(text, "utf-8")
        elif not path.is_file() or path.read_text("utf-8") != text:
            stale.append(path.name)
    if stale:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run: make lock\n")
    return bool(stale)


def locked(text: str) -> Mapping[str, str]:
    """The lock's entries by name, without comments; one name may have an entry a Python version."""
    entries = re.findall(r"^[^\s#].*?(?=^[^\s#]|\Z)", text, re.M | re.S)
    by_name: dict[str, str] = defaultdict(str)
    for entry in entries:
        lines = [line for line in entry.splitlines() if not line.lstrip().startswith("#")]
        name = re.match(r"[A-Za-z0-9._-]+", entry)
        assert name, f"no name in {entry[:80]!r}"
        by_name[canonicalize_name(name[0])] += "\n".join(lines).rstrip() + "\n"
    return by_name


def wanted(folders: Iterable[str]) -> list[Requirement]:
    """What Penstock's own distributions of an image need, with the extras they name of each other.

    Args:
        folders: of the distributions; ``folder[extra]`` asks for an extra.
    """
    requests = [Requirement(folder.rpartition("/")[2]) for folder in folders]
    tables = [_project(folder.partition("[")[0]) for folder in folders]
    own = {table["name"]: table for table in tables}
    ahead = [
        Requirement(f"{table['name']}[{','.join(request.extras)}]")
        for table, request in zip(tables, requests, strict=True)
    ]
    done: set[tuple[str, str]] = set()
    others: list[Requirement] = []
    while ahead:
        requirement = ahead.pop()
        if requirement.name not in own:
            others.append(requirement)
            continue
        for part in {(requirement.name, extra) for extra in ("", *requirement.extras)} - done:
            done.add(part)
            ahead += _required(own[requirement.name], part[1])
    return others


def _project(folder: str) -> dict[str, Any]:
    text = (HERE.parent / folder / "pyproject.toml").read_text("utf-8")
    project: dict[str, Any] = tomllib.loads(text)["project"]
    return project


def _required(project: Mapping[str, Any], extra: str) -> list[Requirement]:
    if not extra:
        return [Requirement(text) for text in project.get("dependencies", [])]
    return [Requirement(text) for text in project["optional-dependencies"][extra]]


def closure(roots: Iterable[Requirement]) -> set[str]:
    """Names of all required packages, without Penstock's own."""
    done: set[tuple[str, str]] = set()
    ahead = [(root, extra) for root in roots for extra in root.extras | {""}]
    while ahead:
        requirement, extra = ahead.pop()
        name = canonicalize_name(requirement.name)
        if name.startswith("penstock-") or (name, extra) in done:
            continue
        done.add((name, extra))
        for below in map(Requirement, requires(name) or []):
            if below.marker is None or below.marker.evaluate({**IMAGE, "extra": extra}):
                ahead += [(below, extra) for extra in below.extras | {""}]
    return {name for name, _ in done}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
