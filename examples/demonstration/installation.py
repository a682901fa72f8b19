"""The demo's installation: broker, services and a second decider, as children of this process."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from penstock.cli.up.processes import Processes
from penstock.config import Settings, load
from penstock.runtime import children
from penstock.runtime.broker import Broker
from penstock.runtime.children import Child
from penstock.runtime.local_broker import with_url
from penstock.runtime.paths import temporary_dir
from penstock.runtime.supervised import Supervised

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "examples" / "penstock.toml"
STANDBY = "standby"
_GRACE_SECONDS = 5.0


class Installation:
    """All processes of one demo.

    Attributes:
        settings: with the broker's address and the run folder.
        folder: temporary; logs and the Parquet files of the Spark jobs lie below it.
        hurry: once set, ending does not wait for busy workers.
        report: called with a sentence about each start and end.
    """

    def __init__(self, settings: Settings, broker: Broker, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self.lake, self.logs = folder / "lake", folder / "logs"
        for subfolder in (self.lake, self.logs):
            subfolder.mkdir()
        self.report: Callable[[str], None] = lambda _: None
        self.hurry = asyncio.Event()
        flags = ["--config", str(CONFIG)]
        self._processes = Processes(settings, flags, broker, self.logs, self._report)
        self._standby = Supervised(
            STANDBY, self._begin_standby, self._report, self.logs / f"{STANDBY}.log"
        )
        self._processes.services[STANDBY] = self._standby  # started and collected with the others

    @property
    def processes(self) -> list[Supervised]:
        return self._processes.all

    def decider(self, pid: int) -> Supervised | None:
        """The decider with this process id."""
        both = (self._processes.services["decider"], self._standby)
        return next((decider for decider in both if decider.pid == pid), None)

    def start(self) -> None:
        self._processes.start()

    async def end(self) -> None:
        """Ends everything in order; workers finish what they run."""
        await self._standby.end(_GRACE_SECONDS, self.hurry)
        await self._processes.end(self.hurry)
        await self._processes.end_broker()

    def keep_logs(self, file: Path) -> None:
        """Writes all services' logs to one file, for a demo that failed."""
        with file.open("w", encoding="utf-8") as out:
            for log in sorted(self.logs.glob("*.log")):
                out.write(f"===== {log.stem}\n{log.read_text('utf-8', 'replace')}\n")

    def _begin_standby(self) -> Child:
        return children.start(
            [sys.executable, "-m", "penstock.cli.main", "decider", "--config", str(CONFIG)],
            name=STANDBY,
            log=self.logs / f"{STANDBY}.log",
            env={"PENSTOCK_NATS__URL": self.settings.nats.url},
        )

    def _report(self, text: str) -> None:
        self.report(text.partition("; see ")[0])


@contextmanager
def prepared() -> Iterator[Installation]:
    """A running broker, a temporary folder, and the other processes ready to start."""
    _own_environment()
    with temporary_dir() as folder, Broker() as broker:
        settings = with_url(load(CONFIG, environment={}), broker.url, broker.monitor_url)
        run_dir = str(folder / "run")
        yield Installation(
            replace(settings, host=replace(settings.host, run_dir=run_dir)), broker, folder
        )
        shutil.rmtree(folder / "lake", ignore_errors=True)


def _own_environment() -> None:
    """The demo's settings are its file's alone; services and workers find `examples.jobs`."""
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        del os.environ[name]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
