"""Workers as real processes, forked from one warm parent of the session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.histories import check, read_all
from tests.integration import orchestrating
from tests.integration.crew import Crew, WarmParent, gather_crew
from tests.integration.guarded import GuardedBroker
from tests.making import MakeSettings

from penstock.runtime.broker import Broker
from penstock.runtime.children import Child


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    """A broker as it is deployed, for one file."""
    with GuardedBroker(tmp_path_factory.mktemp("guarded")) as broker:
        yield broker


@pytest.fixture(scope="session")
def warm_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmParent]:
    parent = WarmParent(tmp_path_factory.mktemp("workers") / "log")
    yield parent
    parent.close()


@pytest.fixture
async def crew(
    request: pytest.FixtureRequest, warm_workers: WarmParent, settings: MakeSettings, tmp_path: Path
) -> AsyncIterator[Crew]:
    """A crew; ``@pytest.mark.parametrize("crew", [{…tables}], indirect=True)`` lays settings over.

    At the end the event log must tell of each job a life that can be.
    """
    tables: dict[str, Any] = getattr(request, "param", {})
    async with crew_at_work(warm_workers, settings, tables, tmp_path) as crew:
        yield crew


@pytest.fixture
def orchestrator(crew: Crew) -> Iterator[orchestrating.Start]:
    """Starts orchestrators as processes; they end with the test."""
    with ExitStack() as running:

        def start(*doom: str) -> Child:
            child = orchestrating.start(crew.settings, *doom)
            running.callback(child.end, 10.0)
            return child

        yield start


@pytest.fixture
async def crew_of_its_own(
    warm_workers: WarmParent,
    broker: Broker,
    settings: MakeSettings,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Crew]:
    """A crew on a broker that the test may kill; settings by indirect parameter."""
    tables = {"nats": {"request_timeout_seconds": 1}, **getattr(request, "param", {})}
    async with crew_at_work(warm_workers, settings, tables, tmp_path) as crew:
        yield crew


@asynccontextmanager
async def crew_at_work(
    parent: WarmParent, make: MakeSettings, tables: dict[str, Any], folder: Path
) -> AsyncIterator[Crew]:
    began = parent.log.stat().st_size
    crew = await gather_crew(parent, make, tables, folder)
    try:
        yield crew
        check(await read_all(crew.bus, crew.subjects), ())
    finally:
        await crew.close()
        with parent.log.open("rb") as log:
            log.seek(began)
            print(log.read().decode("utf-8", "replace"))  # noqa: T201 - shown when a test fails
