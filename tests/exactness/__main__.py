"""Exactness at length: ``python -m tests.exactness --configurations 10000 --seed 1``. Prints JSON.

Each configuration is lived through here and recomputed in another process, whose strings hash
otherwise: an order that depends on a set would show.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.exactness.property import share

from penstock.decider.program import program

_SHARE = 500
"""Configurations a process takes at a time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    began, total = time.monotonic(), Counter[str]()
    left = [
        min(_SHARE, options.configurations - start)
        for start in range(0, options.configurations, _SHARE)
    ]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=spawn) as executor:
        shares = [
            executor.submit(share, number, options.seed, count) for number, count in enumerate(left)
        ]
        for done in shares:
            total += done.result()
            print(f"{total['configurations']} configurations equal", file=sys.stderr, flush=True)
    took = round(time.monotonic() - began, 1)
    print(json.dumps({"program": program(), "took_seconds": took, **dict(total)}, indent=2))


if __name__ == "__main__":
    main()
