"""Nothing that lives is lost when the event log turns over: a seeded proof. Prints JSON.

An event log of 8 MB takes 50 MB a minute of other traffic, of bytes that do not compress. Meanwhile
2,000 jobs live in every state: they wait for a pool without a worker, are delayed past the log's
age, paused, retrying, running, in open batches, graphs and chains, and schedules tick. Every
service, the workers and the broker are killed again and again; of three brokers the one that leads
the event log. Each living job is asked for all the while. In the end all are released.

It is good (exit code 0) if each job ended exactly once and ran, no rule of the log was broken, each
was shown in its state whenever it was asked for, nothing is a dead letter, and the log stayed
within its bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from penstock.runtime.paths import temporary_dir

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # what these share with them
from tests.turnover.installation import Installation, brokers
from tests.turnover.proof import Proof, progress

from machine import describe


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2_000, help="that live: %(default)s")
    parser.add_argument("--running", type=int, default=40, help="of these: %(default)s")
    parser.add_argument("--minutes", type=float, default=4.0, help="of traffic: %(default)s")
    parser.add_argument("--log-bytes", type=int, default=8_000_000, help="%(default)s")
    parser.add_argument("--traffic-mb", type=float, default=50.0, help="a minute: %(default)s")
    parser.add_argument("--kill-seconds", type=float, default=8.0, help="between: %(default)s")
    parser.add_argument("--replicas", type=int, choices=(1, 3), default=1)
    options = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)  # brokers that are lost are no news here
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    about = describe()
    with temporary_dir() as folder, brokers(options.replicas) as nodes:
        installation = Installation(nodes, folder, options.log_bytes, options.running)
        figures = asyncio.run(Proof(installation, options).run())
        if figures["wrong"]:
            kept = Path(tempfile.mkdtemp(prefix="turnover-"))
            for file in (*folder.glob("*.log"), *folder.glob("diary")):
                shutil.copy(file, kept)
            progress(f"the logs of its processes are kept in {kept}")
    sys.stdout.write(json.dumps({"machine": about, **vars(options), **figures}, indent=2) + "\n")
    sys.exit(bool(figures["wrong"]))


if __name__ == "__main__":
    main()
