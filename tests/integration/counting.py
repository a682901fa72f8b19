"""An installation whose batches are counted."""

from __future__ import annotations

from typing import Any

from tests.installation import Installation
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.events.batch import Counts
from penstock.jobs.batches.batch_record import BatchRecord
from penstock.jobs.errors import NotFound
from penstock.jobs.lifecycle import State

QUEUE = "counted"
WITHIN = 15.0


class Stage(Installation):
    """Jobs that are tried once, and what becomes of batches of them."""

    def __init__(self, kind: str, make: MakeSettings) -> None:
        settings = make(jobs={"claim_seconds": 2}, pools={QUEUE: {"tries": 1}}, nats={"user": ""})
        super().__init__(kind, settings, QUEUE)

    async def ended(self, batch_id: str) -> BatchRecord:
        record = await self.client.batches.wait(batch_id, WITHIN)
        how = list((await self.client.batches.ended(batch_id)).values())
        recount = Counts(
            completed=how.count("completed"),
            failed=how.count("failed"),
            cancelled=how.count("cancelled"),
        )
        assert record.counts == recount
        return record

    async def result(self, job_id: str) -> Any:
        async def there() -> bool:
            try:
                return (await self.client.job(job_id)).state.ended
            except NotFound:
                return False

        await eventually(there, WITHIN, f"end of {job_id}")
        view = await self.client.job(job_id)
        assert view.state is State.COMPLETED, view.error
        return view.result

    async def exists(self, job_id: str) -> bool:
        return (
            await self.bus.last(self.subjects.events_stream, self.subjects.job(job_id)) is not None
        )
