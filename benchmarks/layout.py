"""Counts what a reader has to cross: modules, their length, folders, circles, files of a job.

Prints JSON. Product code only: `shared`, `services`, `cli`, `testing`. The files of a job and of a
decider's round are those whose functions ran: a job from dispatch to its recorded end through the
bus in memory and the real worker; a round from snapshots to recorded decisions and plans.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import statistics
import sys
import threading
import tokenize
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import grimp

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(
    {
        *ROOT.glob("shared/src"),
        *ROOT.glob("services/*/src"),
        *ROOT.glob("cli/src"),
        *ROOT.glob("testing/src"),
    }
)
_SMALL_LINES = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="name the files of a job and a round")
    options = parser.parse_args()
    figures = {**sizes(), **imports()}
    for name, run in {"job": _job, "round": _round}.items():
        files = crossed(run)
        figures[f"files_of_a_{name}"] = len(files)
        if options.files:
            figures[f"{name}_files"] = sorted(files)
    print(json.dumps(figures, indent=2))


def sizes() -> dict[str, Any]:
    """Modules, their lines, and how many share a folder."""
    modules = [path for source in SOURCES for path in source.rglob("*.py")]
    texts = {path: path.read_text() for path in modules}
    lengths = sorted(text.count("\n") for text in texts.values())
    stories = sorted(text.count("\n") for path, text in texts.items() if path.name != "__init__.py")
    folders = Counter(path.parent for path in modules)
    largest, most = folders.most_common(1)[0]
    comments, lines = sum(map(_comments, texts.values())), sum(lengths)
    return {
        "modules": len(modules),
        "lines": lines,
        "median_lines": statistics.median(stories),
        "p90_lines": stories[len(stories) * 9 // 10],
        "longest_lines": lengths[-1],
        "modules_over_400_lines": sum(length > 400 for length in lengths),
        "largest_folder": f"{largest.relative_to(ROOT)}: {most}",
        "folders_over_15_modules": sum(count > 15 for count in folders.values()),
        "comment_lines_per_100": round(comments / lines * 100, 2),
    }


def _comments(text: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT and "noqa" not in token.string for token in tokens)


def imports() -> dict[str, Any]:
    """Modules that one other imports, and circles among modules.

    A circle is a set of modules each of which imports all others, directly or through others,
    at the top of a file or in a function (strongly connected component).
    """
    packages = sorted(
        f"penstock.{path.name}"
        for source in SOURCES
        for path in (source / "penstock").iterdir()
        if (path / "__init__.py").is_file()
    )
    graph = grimp.build_graph(*packages, cache_dir=None)
    lone = [
        name for name in graph.modules if len(graph.find_modules_that_directly_import(name)) == 1
    ]
    behind = {name: graph.find_upstream_modules(name) for name in graph.modules}
    circles = {
        frozenset({name, *(other for other in others if name in behind[other])})
        for name, others in behind.items()
    }
    circles = {circle for circle in circles if len(circle) > 1}
    return {
        "imported_by_one": len(lone),
        "imported_by_one_and_small": sum(_lines(name) <= _SMALL_LINES for name in lone),
        "import_circles": len(circles),
        "modules_in_circles": sum(map(len, circles)),
    }


def _lines(module: str) -> int:
    path = Path(*module.split("."))
    for source in SOURCES:
        for file in ((source / path).with_suffix(".py"), source / path / "__init__.py"):
            if file.is_file():
                return file.read_text().count("\n")
    return 0


def crossed(run: Callable[[Callable[[], None]], None]) -> set[str]:
    """Product files whose functions ran between the call of ``begin`` and the end of ``run``."""
    files: set[str] = set()
    prefixes = tuple(map(str, SOURCES))

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefixes) and code.co_name[0] != "<":
            files.add(str(Path(code.co_filename).relative_to(ROOT)))

    def begin() -> None:
        threading.setprofile(profile)  # threads that run the job start after this
        sys.setprofile(profile)

    try:
        run(begin)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {name for name in files if "/testing/" not in name and "memory" not in name}


def _job(begin: Callable[[], None]) -> None:
    from noop_jobs import noop  # noqa: PLC0415 - beside this file
    from penstock.config import Settings  # noqa: PLC0415
    from penstock.testing.bench import Bench  # noqa: PLC0415

    async def live() -> None:
        bench = Bench(Settings())
        begin()
        await bench.client.dispatch(noop(1))
        await bench.run_pending()

    asyncio.run(live())


def _round(begin: Callable[[], None]) -> None:
    from replay import Maker  # noqa: PLC0415 - beside this file

    maker = Maker(io.BytesIO(), {"profile": "balanced"}, 1, 0)
    begin()
    maker.run(0, 5, 1)


if __name__ == "__main__":
    main()
