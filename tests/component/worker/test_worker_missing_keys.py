"""Jobs that one worker has the key of and another has not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.component.worker.given import QUEUE, settings

from penstock.config.topology import pools
from penstock.events.envelope import utc_now
from penstock.jobs import Client, job, registry
from penstock.jobs.dispatch.job_factory import JobFactory
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads.encryption import KeyRing
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.claiming import claims
from penstock.worker.claiming.claims import Claims
from penstock.worker.core.company import Company
from penstock.worker.running.outcome import Outcome
from penstock.worker.running.recording import FinishedJob, Recorder

RING = KeyRing({"first": bytes(32)})


@job(queue=QUEUE, name="shop.charge", encrypted=True)
def charge(card: str) -> None: ...


del registry.REGISTRY[charge.name]


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[charge.name] = charge
    yield
    del registry.REGISTRY[charge.name]


class Site:
    """A broker whose clock the test moves; workers with and without the key."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = utc_now().timestamp()
        self.settings = settings()
        self.bus = MemoryBus(settings=self.settings, now=lambda: self.now)
        factory = JobFactory("client", 512_000, ring=RING)
        self.client = Client(self.bus.client(), prefix="p", factory=factory)
        self._monkeypatch = monkeypatch

    def worker(self, name: str, ring: KeyRing) -> Claims:
        self._monkeypatch.setattr(claims.encryption, "load", lambda _: ring)
        profile = pools(self.settings)[QUEUE].profile
        return Claims(self.bus.client(), self.settings, profile, "h", name)

    async def win(self, worker: Claims) -> list[claims.ClaimedJob]:
        deliveries = await self.bus.client().puller(QUEUE).fetch(10, 0)
        return await worker.win(deliveries, Company(runs_one=True))

    def pass_seconds(self, seconds: float) -> None:
        self.now += seconds
        self.bus.tick()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(monkeypatch)


async def test_a_job_that_was_given_back_waits_for_its_key_and_runs(site: Site) -> None:
    """Its message may have been acknowledged by the first: no copy of it is started from."""
    holder, keyless = site.worker("holder", RING), site.worker("keyless", KeyRing({}))
    job_id = await site.client.dispatch(charge(card="1"))
    [held] = await site.win(holder)
    await holder.release([held], "asked to end")
    assert await site.win(keyless) == []
    waits = (await site.client.job(job_id)).handed_on
    assert waits is not None
    assert "need key 'first', known keys: none" in waits.reason
    site.pass_seconds(16)
    [again] = await site.win(holder)
    await Recorder(site.bus.client(), holder, 1_000_000).record(
        [FinishedJob(again, Outcome(result=b"\xc0"))]
    )
    view = await site.client.job(job_id)
    assert (view.state, view.attempts, view.handed_on) == (State.COMPLETED, 1, None)


async def test_a_job_whose_worker_was_lost_waits_for_its_key_and_runs(site: Site) -> None:
    holder, keyless = site.worker("holder", RING), site.worker("keyless", KeyRing({}))
    job_id = await site.client.dispatch(charge(card="1"))
    assert len(await site.win(holder)) == 1
    site.pass_seconds(2.0)  # the claim lapses
    assert await site.win(keyless) == []
    view = await site.client.job(job_id)
    assert (view.state, view.record.lost_workers) == (State.RETRYING, 1)
    site.pass_seconds(16)
    [again] = await site.win(holder)
    assert again.id == job_id
