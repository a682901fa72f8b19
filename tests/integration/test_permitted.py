"""Every service does its work with the permissions of its role, over TLS."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.integration.guarded import GuardedBroker
from tests.integration.sample_jobs import fail, note, send_note
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.cli import main as cli
from penstock.cli.deploy.check import Found, look
from penstock.config import Settings
from penstock.jobs import Client
from penstock.runtime import children
from penstock.runtime.paths import temporary_dir

_ROOT = Path(__file__).parents[2]
_TABLES: dict[str, Any] = {
    "jobs": {"modules": ["tests.integration.sample_jobs"], "exclusive_lease_seconds": 2},
    "decider": {"lease_seconds": 1},
    "pools": {
        "work": {"min_workers": 1, "max_workers": 2, "cpu_cores": 0.01, "memory_bytes": 10**6},
    },
    "host": {"reserve_cpu_cores": 0, "max_memory_share": 1.0, "max_cpu_share": 1.0},
}
SERVICES = ("orchestrator", "metrics", "decider", "decider", "executor")


class Site:
    """All services as processes, each with the key of its role."""

    def __init__(self, broker: GuardedBroker, folder: Path) -> None:
        self.broker, self._folder, self._open = broker, folder, ExitStack()
        (folder / "run").mkdir(mode=0o700)
        self._make = MakeSettings(lambda: broker.url, str(folder / "run"))
        self._make.prefix = "penstock"

    def settings(self, role: str) -> Settings:
        worker = {"worker_nkey_file": f"{self.broker.secrets}/worker/nkey.seed"}
        return self.broker.settings(
            self._make, role, **_TABLES, nats=worker if role == "executor" else {}
        )

    def start(self) -> None:
        for number, role in enumerate(SERVICES):
            self._start(role, self._folder / f"{role}-{number}.log")

    def _start(self, role: str, log: Path) -> None:
        nats = self.settings(role).nats
        config = self._folder / f"{role}.json"
        environment = {
            "PENSTOCK_NATS__URL": nats.url,
            "PENSTOCK_NATS__CA_FILE": nats.ca_file,
            "PENSTOCK_NATS__NKEY_FILE": nats.nkey_file,
            "PENSTOCK_NATS__WORKER_NKEY_FILE": nats.worker_nkey_file,
            "PENSTOCK_HOST__NAME": "test-host",
            "PENSTOCK_HOST__RUN_DIR": str(self._folder / "run"),
        }
        config.write_text(_toml(_TABLES), "utf-8")
        argv = [sys.executable, "-m", cli.__name__, role, "--config", str(config)]
        child = children.start(argv, name=role, log=log, cwd=_ROOT, env=environment)
        self._open.callback(child.end, 20.0)

    def stop(self) -> None:
        self._open.close()

    def logs(self) -> str:
        return "\n".join(path.read_text("utf-8")[-3000:] for path in self._folder.glob("*.log"))


def _toml(tables: dict[str, Any], above: str = "") -> str:
    lines = []
    for name, value in tables.items():
        if isinstance(value, dict):
            lines += ["", f"[{above}{name}]", _toml(value, f"{above}{name}.")]
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded")) as broker, temporary_dir() as folder:
        site = Site(broker, folder)
        site.start()
        try:
            yield site
        finally:
            site.stop()


async def test_jobs_run_and_no_service_asks_for_what_it_may_not(site: Site, tmp_path: Path) -> None:
    diary = str(tmp_path / "diary")
    async with Client.connect(site.settings("dispatcher")) as client:
        ids = await client.dispatch_many(
            [note(diary, "one"), send_note(diary, "two"), fail(diary, "three", 1)]
        )
        poison = await client.dispatch(fail(diary, "dead", 9))
        late = await client.dispatch(note(diary, "late"), delay=600)
        await client.cancel(late)
        ended = await asyncio.gather(*(client.wait(each, 60) for each in [*ids, poison]))
        batch = await client.batches.create([note(diary, "b1"), note(diary, "b2")])
        await client.batches.wait(batch, 30)
    assert [view.state for view in ended] == [*(["completed"] * 3), "dead"], site.logs()
    async with Client.connect(site.settings("operator")) as client:
        await client.pause_queue("work", "a test")
        await client.resume_queue("work")
        await client.retry(poison)
    assert site.broker.violations() == []


@pytest.mark.parametrize("role", sorted(set(SERVICES)))
async def test_each_service_is_seen_to_work_with_its_own_key(site: Site, role: str) -> None:
    settings = site.settings(role)
    bus = await connect(settings)

    async def fine() -> bool:
        return (await look(bus, settings, role)).fine

    await eventually(fine, 30, f"check of {role}")
    await bus.close()


async def test_a_host_that_never_spoke_is_not_fine(site: Site) -> None:
    settings = site.settings("executor")
    elsewhere = replace(settings, host=replace(settings.host, name="elsewhere"))
    bus = await connect(settings)
    found = await look(bus, elsewhere, "executor")
    await bus.close()
    assert (found.fine, found.silent_seconds) == (False, None)


def test_a_service_that_fell_silent_is_not_fine() -> None:
    assert not Found(role="metrics", silent_seconds=5.1, allowed_seconds=5.0).fine
