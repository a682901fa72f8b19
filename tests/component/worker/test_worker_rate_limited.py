"""What becomes of a job that comes too early for its rate limit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.component.worker.given import QUEUE, Stage, settings

from penstock.jobs import RateLimited, job, registry
from penstock.jobs.lifecycle import State


@job(queue=QUEUE, middleware=[RateLimited(1, per_seconds=3600, key="{who}", otherwise="skip")])
def skipped(who: str) -> None: ...


@job(queue=QUEUE, middleware=[RateLimited(1, per_seconds=3600, otherwise="fail")])
def failed() -> None: ...


@job(queue=QUEUE, middleware=[RateLimited(1, per_seconds=3600, defer_seconds=600)])
def deferred() -> None: ...


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    kinds = (skipped, failed, deferred)
    registry.REGISTRY.update({kind.name: kind for kind in kinds})
    yield
    for kind in kinds:
        del registry.REGISTRY[kind.name]


async def test_it_is_skipped_or_fails_or_is_deferred_as_its_limit_says() -> None:
    stage = Stage(settings())
    dispatch = stage.client.dispatch
    async with stage.worker():
        first, second, other = [await dispatch(skipped(who=name)) for name in ("a", "a", "b")]
        assert (await stage.ended(first)).state is State.COMPLETED
        assert (await stage.ended(second)).state is State.CANCELLED
        assert (await stage.ended(other)).state is State.COMPLETED

        assert (await stage.ended(await dispatch(failed()))).state is State.COMPLETED
        view = await stage.ended(await dispatch(failed()))
        assert (view.state, view.error.kind) == (
            State.DEAD,
            "penstock.jobs.errors.RateLimitExceeded",
        )
        assert "more than 1 starts in 3600 s" in view.error.message

        assert (await stage.ended(await dispatch(deferred()))).state is State.COMPLETED
        late = await stage.reached(await dispatch(deferred()), State.RETRYING)
        assert late.record.put_off == "rate limit"
        wait = late.record.available_at - late.record.dispatched_at
        assert timedelta(seconds=600) <= wait < timedelta(seconds=660)


@pytest.mark.parametrize("terms", [{"otherwise": "drop"}, {"defer_seconds": -1}])
def test_terms_that_cannot_be_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"otherwise|deferred"):
        RateLimited(1, **terms)
