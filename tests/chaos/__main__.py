"""Long chaos: an installation under load and seeded faults, many times.

Two hosts with an executor and three workers each, two orchestrators, a broker; jobs of all kinds,
an exclusive queue, a batch and random workflows. Each run prints its faults and a verdict. It is
good if each acknowledged job ended exactly once and each workflow as its program says, no rule of
the event log was broken, the installation was whole again after each fault without a person, no
service ended by itself, and nothing was left behind. If the recorder missed an event, the run is
not judged and counts apart. Of a run that is not good, the command that repeats it is printed and
its logs are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
import textwrap
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

from tests.chaos.allowed import NotAllowed
from tests.chaos.plan import ABOUT, Kind, draw
from tests.chaos.run import Verdict, run

from penstock.runtime import children
from penstock.runtime.children import Child
from penstock.runtime.paths import temporary_dir

_LOOK_SECONDS = 0.5
_TEARDOWN_SECONDS = 60.0
EXIT_CODES = {"good": 0, "BAD": 1, "NOT JUDGED": 3}


def one(seed: int, options: argparse.Namespace) -> Verdict:
    """A run, without the faults that this machine does not allow: it prints which."""
    kinds = list(options.faults)
    spread = {"always": True, "never": False, "some": seed % 3 == 0}
    namespaces = spread[options.namespaces]
    while True:
        plan = draw(seed, kinds, options.jobs, options.count, namespaces, options.workflows)
        try:
            with temporary_dir() as folder:
                verdict = asyncio.run(run(plan, folder))
                if not verdict.good:
                    _keep(folder, seed)
            return verdict
        except NotAllowed as error:
            print(f"seed {seed} goes without: {error}", flush=True)
            if not error.kinds:
                namespaces = False
            kinds = [kind for kind in kinds if kind not in error.kinds]


def _kinds(text: str) -> tuple[Kind, ...]:
    try:
        return tuple(Kind(name) for name in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; there are {', '.join(Kind)}") from None


def _keep(folder: Path, seed: int) -> None:
    for log in folder.glob("*.log"):
        kept = Path(tempfile.gettempdir()) / f"chaos-{seed}-{log.name}"
        kept.write_bytes(log.read_bytes())
        print(f"kept {kept}", flush=True)


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="kinds of faults:\n" + "\n".join(_paragraphs()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=20, help="%(default)s by default")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; counts up")
    parser.add_argument("--beside", type=int, default=1, help="so many runs at a time: %(default)s")
    parser.add_argument("--jobs", type=int, default=400, help="a run: %(default)s by default")
    parser.add_argument("--count", type=int, default=12, help="of faults a run: %(default)s")
    parser.add_argument("--workflows", type=int, default=10, help="random ones a run: %(default)s")
    parser.add_argument(
        "--faults",
        type=_kinds,
        default=tuple(Kind),
        metavar="KIND,...",
        help="only these kinds; by default all",
    )
    parser.add_argument(
        "--namespaces",
        choices=("always", "some", "never"),
        default="some",
        help="hosts in network namespaces of their own; some: every third seed",
    )
    return parser.parse_args(words)


def main() -> None:
    options = arguments(sys.argv[1:])
    logging.basicConfig(level=logging.CRITICAL)  # lost brokers are no news here
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    seeds = range(options.seed, options.seed + options.runs)
    verdicts = _beside(seeds, options) if options.beside > 1 else _in_turn(seeds, options)
    of_word: dict[str, list[int]] = {word: [] for word in EXIT_CODES}
    with closing(verdicts):
        for seed, word in verdicts:
            of_word[word].append(seed)
    good, *others = of_word.items()
    counted = "".join(f", {len(bad)} {word}: seeds {sorted(bad)}" for word, bad in others if bad)
    print(f"{options.runs} runs, {len(good[1])} good{counted}")
    sys.exit(max(code for word, code in EXIT_CODES.items() if of_word[word]))


def _end(*_: object) -> None:
    """Has services ended, mounts and namespaces removed; a second signal does not cut it short."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(1)


def _in_turn(
    seeds: Iterable[int], options: argparse.Namespace
) -> Generator[tuple[int, str], None, None]:
    for seed in seeds:
        verdict = one(seed, options)
        print(verdict, flush=True)
        yield seed, verdict.word


def _beside(
    seeds: Iterable[int], options: argparse.Namespace
) -> Generator[tuple[int, str], None, None]:
    """As many at a time as the options say, each in a process with all that is its own.

    They end with this process, in order, however it ends: see :func:`children.start`.
    """
    words = {code: word for word, code in EXIT_CODES.items()}
    left, running = iter(seeds), dict[int, Child]()
    with temporary_dir() as folder:
        try:
            while True:
                for seed in islice(left, options.beside - len(running)):
                    running[seed] = _alone(seed, options, folder)
                if not running:
                    return
                for seed in _ended(running):
                    code = running.pop(seed).end()
                    lines = _output(folder, seed).read_text("utf-8", "replace").splitlines()
                    if lines and lines[-1].startswith("1 runs, "):  # counts, as is done here
                        lines.pop()
                    print("\n".join(lines), flush=True)
                    yield seed, words.get(code, "BAD")
        finally:
            for run_beside in running.values():
                run_beside.signal(signal.SIGTERM)
            for run_beside in running.values():
                run_beside.end(_TEARDOWN_SECONDS)


def _alone(seed: int, options: argparse.Namespace, folder: Path) -> Child:
    command = [sys.executable, "-m", "tests.chaos", *words_of(options), "--seed", str(seed)]
    return children.start(
        command,
        name=f"seed {seed}",
        log=_output(folder, seed),
        parent_death_signal=signal.SIGTERM,
    )


def _output(folder: Path, seed: int) -> Path:
    return folder / f"{seed}.txt"


def _ended(running: Mapping[int, Child]) -> list[int]:
    """Those that have; returns when there are any."""
    while True:
        for child in running.values():
            child.wait(_LOOK_SECONDS / len(running))
        if ended := [seed for seed, child in running.items() if child.exit_code is not None]:
            return ended


def words_of(options: argparse.Namespace) -> list[str]:
    """The command line of one run with these options, without its seed."""
    return [
        *("--runs", "1", "--jobs", str(options.jobs), "--count", str(options.count)),
        *("--workflows", str(options.workflows)),
        *("--namespaces", options.namespaces, "--faults", ",".join(options.faults)),
    ]


def _paragraphs() -> Iterator[str]:
    """The kinds of faults, as `--help` shows them."""
    for kind, about in ABOUT.items():
        yield textwrap.fill(about, 98, initial_indent=f"  {kind:19}", subsequent_indent=" " * 21)


if __name__ == "__main__":
    main()
