"""Jobs whose messages were given to workers and are not acknowledged.

Such a message does not wait in the queue any more, and its job may not have started: the worker
waits for storage in the event log, has claimed more than it has begun, or died. The broker offers
the message again by itself, so none may be made beside it. Nor beside one that waits: it may be
younger than its job's last event, when an earlier orchestrator stored it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from penstock.bus.protocol import Bus
from penstock.bus.since import first_since
from penstock.events.subjects import Subjects
from penstock.jobs.queues.queue_messages import JOB

_PAGE = 100
_MOST = 5_000
"""Messages that are read at once; each holds its whole call."""


class UnacknowledgedJobs(msgspec.Struct, frozen=True):
    """The jobs of a queue's unacknowledged messages.

    Attributes:
        jobs: when the last message of each was stored, POSIX seconds by the broker's clock.
        read_to: POSIX seconds up to which messages were read; None: all of them.
    """

    jobs: Mapping[str, float]
    read_to: float | None = None

    def may_hold(self, job_id: str, stored_by: float) -> bool:
        """Whether there may be a message of a job.

        Args:
            stored_by: POSIX seconds by which its message was stored, if it was.
        """
        return job_id in self.jobs or (self.read_to is not None and stored_by > self.read_to)


async def read(
    bus: Bus, subjects: Subjects, queue: str, stored_from: float, through: int, most: int = _MOST
) -> UnacknowledgedJobs:
    """The claimed messages of a queue, or those that wait, too.

    Args:
        stored_from: POSIX seconds; older messages are of no interest.
        through: sequence of the last message that is of interest: for the claimed ones, of the last
            that was given to a worker.

    Raises:
        BusError
    """
    stream, subject = subjects.jobs_stream, subjects.queue(queue)
    start = await first_since(bus, stream, subject, datetime.fromtimestamp(stored_from, UTC))
    jobs: dict[str, float] = {}
    count = 0
    while start <= through:
        page = await bus.history(stream, subject, _PAGE, start)
        if not page:
            break
        jobs |= {stored.headers.get(JOB, ""): stored.at.timestamp() for stored in page}
        count, start = count + len(page), page[-1].sequence + 1
        if count >= most and start <= through:
            return UnacknowledgedJobs(jobs, page[-1].at.timestamp())
    return UnacknowledgedJobs(jobs)
