"""Messages without their key: when they come again, and what of them does."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.bus.protocol import Delivery
from penstock.events.subjects import Subjects
from penstock.jobs.queues import queue_messages
from penstock.worker.claiming.refusing import pause_seconds


@pytest.mark.parametrize(
    ("waited_seconds", "chance", "pause"),
    [(0, 0, 7.5), (0, 1, 15), (60, 0.5, 45), (600, 0, 150), (86_400, 1, 300)],
)
def test_a_job_without_its_key_is_offered_less_and_less_often(
    waited_seconds: float, chance: float, pause: float
) -> None:
    assert pause_seconds(waited_seconds, chance) == pause


def test_what_a_message_tells_the_broker_is_not_repeated_in_the_workers_name() -> None:
    delivery = Delivery(
        subject="penstock.jobs.work",
        body=b"call",
        headers={"Penstock-Job": "a", "Nats-Rollup": "all", "nats-ttl": "1s", "traceparent": "t"},
        ack_subject="x",
        sequence=1,
        deliveries=1,
        stored_at=0.0,
        pending=0,
    )
    due = datetime(2026, 11, 22, 12, tzinfo=UTC)
    again = queue_messages.postponed(
        Subjects(), delivery, "a", due, {queue_messages.LOCKED_SINCE: "5"}
    )
    assert (again.subject, again.body) == ("penstock.schedules.work.a", b"call")
    assert again.headers == {
        "Penstock-Job": "a",
        "traceparent": "t",
        queue_messages.LOCKED_SINCE: "5",
        "Nats-Schedule": "@at 2026-11-22T12:00:00Z",
        "Nats-Schedule-Target": "penstock.jobs.work",
    }
