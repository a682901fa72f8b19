"""What is dispatched while things go wrong."""

from __future__ import annotations

import asyncio
import random

from tests.chaos.chaos_jobs import compute, compute_in_c, fail, occupy, touch
from tests.chaos.site import CLAIM_SECONDS, Site
from tests.waiting import eventually

from penstock.bus.protocol import BusError
from penstock.events.envelope import new_id
from penstock.jobs import Call
from penstock.jobs.errors import AlreadyDispatched

LANES = 4
BATCH, BATCH_JOBS = "nightly", 60
_MOST_OPEN = 60
"""Jobs that wait or run, so that there is load to the end and no more than can be carried."""
EXPIRES_SECONDS = 900.0
"""Longer than a run, less than a wrong clock is off."""
_STALLED_SECONDS = 60.0
_AGAIN_SECONDS = 0.05


async def dispatch_all(site: Site, seed: int, jobs: int) -> None:
    """Until so many dispatches are acknowledged, and a batch beside them."""
    chance = random.Random(seed)
    lanes = (_lane(site, chance, jobs // LANES) for _ in range(LANES))
    await asyncio.gather(_batch(site), *lanes)


async def _lane(site: Site, chance: random.Random, jobs: int) -> None:
    taken = 0
    while taken < jobs:
        await eventually(
            lambda: len(site.acknowledged) - len(site.ended) < _MOST_OPEN, _STALLED_SECONDS
        )
        job_id, call = new_id(), _some_call(site, chance)
        delay, stubborn = chance.choice([0, 0, 0, 0.3]), chance.random() < 0.7
        expires = chance.choice([None, EXPIRES_SECONDS])
        taken += await _dispatched(site, job_id, call, delay, expires, stubborn)


async def _dispatched(
    site: Site, job_id: str, call: Call, delay: float, expires: float | None, stubborn: bool
) -> bool:
    """Whether it was acknowledged; one not ``stubborn`` is given up at the first refusal."""
    while True:
        try:
            await site.client.dispatch(call, delay=delay, expires=expires, job_id=job_id)
        except AlreadyDispatched:  # our own, whose answer was lost
            pass
        except BusError:
            site.refused += 1
            if not stubborn:
                return False
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        site.acknowledged.append(job_id)
        return True


def _some_call(site: Site, chance: random.Random) -> Call:
    witness = str(site.witness)
    calls = [
        touch(witness=witness),
        compute(witness=witness, seconds=chance.uniform(0, 0.1)),
        compute_in_c(witness=witness, seconds=1.5 * CLAIM_SECONDS),
        fail(witness=witness, times=chance.choice([0, 1, 2, 3])),
        occupy(witness=witness, seconds=chance.uniform(0.01, 0.1), stubborn=chance.random() < 0.3),
    ]
    return chance.choices(calls, [40, 20, 1, 10, 10])[0]


async def _batch(site: Site) -> None:
    calls = [touch(witness=str(site.witness)) for _ in range(BATCH_JOBS)]
    while True:
        try:
            await site.client.batches.create(
                calls, batch_id=BATCH, then=touch(witness=str(site.witness)), open_seconds=600
            )
            return
        except AlreadyDispatched:  # all of it, by us: the last answer was lost
            return
        except BusError:
            site.refused += 1
            await asyncio.sleep(_AGAIN_SECONDS)
