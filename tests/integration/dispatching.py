"""A process that makes a batch and dies on the way.

``python -m tests.integration.dispatching SETTINGS BATCH JOBS PATTERN``: it kills itself after it
stored the messages among which the first subject matches the pattern.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import uvloop
from tests.integration.counted_jobs import count
from tests.integration.orchestrating import Doomed

from penstock.bus.nats import connect
from penstock.config import Settings
from penstock.jobs import Client
from penstock.runtime import children
from penstock.runtime.children import Child


def start(settings: Settings, batch_id: str, jobs: int, pattern: str) -> Child:
    written = msgspec.json.encode(settings).decode()
    module = "tests.integration.dispatching"
    argv = [sys.executable, "-m", module, written, batch_id, str(jobs), pattern]
    log = Path(settings.host.run_dir).parent / "dispatcher.log"
    return children.start(argv, name="dispatcher", log=log)


async def main(written: str, batch_id: str, jobs: str, pattern: str) -> None:
    settings = msgspec.json.decode(written, type=Settings)
    bus = Doomed(await connect(settings), "AFTER", pattern)
    client = Client(bus, prefix=settings.prefix)  # type: ignore[arg-type]
    await client.batches.create(
        (count(number=number) for number in range(int(jobs))), batch_id=batch_id, open_seconds=3
    )


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
