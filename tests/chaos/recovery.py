"""How long an installation takes to be whole again after a fault, without a person."""

from __future__ import annotations

import time

from tests.chaos.chaos_jobs import touch
from tests.chaos.site import Site
from tests.waiting import eventually

from penstock.bus.protocol import BusError
from penstock.events.envelope import new_id
from penstock.jobs.errors import AlreadyDispatched

STALLED_SECONDS = 60.0
"""Load goes on meanwhile: nothing ends for so long only if something hangs for good."""
RECOVERY_SECONDS = 30.0
"""From the end of a fault until a job that was dispatched then has ended."""


async def refuses(site: Site) -> None:
    """Returns when a dispatch is refused, which it must be."""

    async def refused() -> bool:
        try:
            site.acknowledged.append(await site.client.dispatch(touch(witness=str(site.witness))))
        except BusError:
            return True
        return False

    await eventually(refused, STALLED_SECONDS, "a dispatch refused")


async def recovers(site: Site, fault: str) -> None:
    """Dispatches a job and waits for its end; notes how long it took.

    Raises:
        AssertionError: it took longer than `RECOVERY_SECONDS`.
    """
    began, job_id = time.monotonic(), new_id()

    async def ended() -> bool:
        if job_id not in site.acknowledged:
            try:
                await site.client.dispatch(touch(witness=str(site.witness)), job_id=job_id)
            except AlreadyDispatched:
                pass
            except BusError:
                return False
            site.acknowledged.append(job_id)
        return job_id in site.ended

    await eventually(ended, RECOVERY_SECONDS, f"a job dispatched after {fault} ended")
    site.recoveries.append((fault, time.monotonic() - began))
