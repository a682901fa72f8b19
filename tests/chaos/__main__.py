"""Long chaos: ``python -m tests.chaos --runs 100 --seed 1``; ``--runs 1`` runs one seed again."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.links import NotAllowed
from tests.chaos.plan import Kind, draw
from tests.chaos.run import Verdict, run

from penstock.runtime.paths import temporary_dir


def one(seed: int, options: argparse.Namespace) -> Verdict:
    """A run; without what this machine does not let us do, which is said."""
    kinds = [Kind(name) for name in options.faults.split(",")] if options.faults else list(Kind)
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
            if not namespaces:
                kinds.remove(Kind.FILL_DISK)
            namespaces = False


def _keep(folder: Path, seed: int) -> None:
    for log in folder.glob("*.log"):
        kept = Path(tempfile.gettempdir()) / f"chaos-{seed}-{log.name}"
        kept.write_bytes(log.read_bytes())
        print(f"kept {kept}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; counts up")
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--count", type=int, default=12, help="of faults a run")
    parser.add_argument("--faults", default="", help="only these kinds, with commas between")
    parser.add_argument(
        "--namespaces",
        choices=("always", "some", "never"),
        default="some",
        help="hosts in network namespaces of their own; some: every third seed",
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # mounts and namespaces are taken down
    bad = []
    for seed in range(options.seed, options.seed + options.runs):
        verdict = one(seed, options)
        print(verdict, flush=True)
        if not verdict.good:
            bad.append(seed)
    print(f"{options.runs} runs, {len(bad)} bad" + (f": seeds {bad}" if bad else ""))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
