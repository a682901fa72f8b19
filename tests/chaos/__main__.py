"""Long chaos: an installation under load and seeded faults, many times.

Two hosts with an executor and three workers each, two orchestrators, a broker; jobs of all kinds,
an exclusive queue and a batch. Each run prints its faults and a verdict. It is good if each
acknowledged job ended exactly once, no rule of the event log was broken, the installation was whole
again after each fault without a person, no service ended by itself, and nothing was left behind. If
the recorder missed an event, the run is not judged and counts apart. Of a run that is not good, the
command that repeats it is printed and its logs are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.chaos.allowed import NotAllowed
from tests.chaos.plan import ABOUT, Kind, draw
from tests.chaos.run import Verdict, run

from penstock.runtime.paths import temporary_dir


def one(seed: int, options: argparse.Namespace) -> Verdict:
    """A run, without the faults that this machine does not allow: it prints which."""
    kinds = list(options.faults)
    spread = {"always": True, "never": False, "some": seed % 3 == 0}
    namespaces = spread[options.namespaces]
    while True:
        plan = draw(seed, kinds, options.jobs, options.count, namespaces)
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
    parser.add_argument("--jobs", type=int, default=400, help="a run: %(default)s by default")
    parser.add_argument("--count", type=int, default=12, help="of faults a run: %(default)s")
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # mounts and namespaces are taken down
    words: dict[str, list[int]] = {"good": [], "BAD": [], "NOT JUDGED": []}
    for seed in range(options.seed, options.seed + options.runs):
        verdict = one(seed, options)
        print(verdict, flush=True)
        words[verdict.word].append(seed)
    good, *others = words.items()
    counted = "".join(f", {len(seeds)} {word}: seeds {seeds}" for word, seeds in others if seeds)
    print(f"{options.runs} runs, {len(good[1])} good{counted}")
    sys.exit(len(good[1]) != options.runs)


def _paragraphs() -> Iterator[str]:
    """The kinds of faults, as `--help` shows them."""
    for kind, about in ABOUT.items():
        yield textwrap.fill(about, 98, initial_indent=f"  {kind:19}", subsequent_indent=" " * 21)


if __name__ == "__main__":
    main()
