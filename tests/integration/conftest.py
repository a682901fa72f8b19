"""Workers as real processes, forked from one warm parent of the session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.crew import Crew, WarmParent, gather_crew
from tests.integration.job_histories import check, read_all
from tests.making import MakeSettings


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
    began = warm_workers.log.stat().st_size
    crew = await gather_crew(warm_workers, settings, tables, tmp_path)
    try:
        yield crew
        check(await read_all(crew.bus, crew.subjects), ())
    finally:
        await crew.close()
        with warm_workers.log.open("rb") as log:
            log.seek(began)
            print(log.read().decode("utf-8", "replace"))  # noqa: T201 - shown when a test fails
