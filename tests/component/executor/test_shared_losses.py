"""What the executor records of jobs whose worker ran several."""

from __future__ import annotations

from tests.waiting import eventually

from penstock.config import Settings
from penstock.events.job import JobRecovered, JobStarted
from penstock.events.subjects import Subjects
from penstock.executor.recovering.job_recovery import Recovery
from penstock.executor.recovering.returns import Returns
from penstock.jobs import Client, job
from penstock.jobs.job_log import JobLog
from penstock.jobs.queues import queue_messages
from penstock.testing.memory.bus import MemoryBus

WORKER = "w-1"


@job(queue="mail")
def work() -> None: ...


class Host:
    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.client = Client(self.bus)
        self._log = JobLog(self.bus, Subjects(), "worker/h.w-1")

    async def dispatch(self, count: int) -> list[str]:
        return [await self.client.dispatch(work()) for _ in range(count)]

    async def loses(self, ids: list[str]) -> None:
        """A worker starts these jobs and dies."""
        deliveries = await self.bus.puller("mail").fetch(10, 0)
        claims = {each.headers[queue_messages.JOB]: each.ack_subject for each in deliveries}
        for job_id in ids:
            started = JobStarted(
                job_id=job_id, queue="mail", attempt=1, host="h", worker=WORKER, slots=8
            )
            await self.bus.append(self._log.outgoing(started, None))
        await self.bus.give_back([claims[other] for other in claims.keys() - set(ids)])
        before = {job_id: len(await self.losses(job_id)) for job_id in ids}
        recovery = Recovery(self.bus, Settings(), "executor/h")
        Returns(self.bus, recovery).give_back(
            [claims[job_id] for job_id in ids], WORKER, ids, ran=ids, ended="w-1 was killed"
        )

        async def all_recorded() -> bool:
            return all([len(await self.losses(each)) > before[each] for each in ids])

        await eventually(all_recorded)

    async def recoveries(self, job_id: str) -> list[JobRecovered]:
        events = [event for _, event in (await self.client.job(job_id)).events]
        return [event for event in events if isinstance(event, JobRecovered)]

    async def losses(self, job_id: str) -> list[int]:
        return [event.together for event in await self.recoveries(job_id)]


async def test_a_loss_is_taken_to_be_a_suspects_doing_where_one_ran() -> None:
    host = Host()
    suspect, other, *innocent = await host.dispatch(4)
    for _ in range(2):
        await host.loses([suspect, other])
    await host.loses([suspect, *innocent])
    assert [await host.losses(job_id) for job_id in innocent] == [[3], [3]]
    assert await host.losses(suspect) == [2, 2, 1]
    record = (await host.client.job(suspect)).record
    assert (record.lost_together, record.lost_workers) == (2, 1)
    last = (await host.recoveries(suspect))[-1]
    assert last.reason == "w-1 was killed; it ran 3 jobs, 1 of them suspects"
