"""Which jobs: the one filter of lists and of operations on many. Pure."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from penstock.jobs import derived_ids
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.payloads.payload import Payload

SCHEDULE_TAG = "schedule:"
"""What the tag begins with that names the schedule of a job."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs that have all that is named; what is empty or None matches any.

    Attributes:
        queues: names of queues, lanes of priorities included.
        function: name of the registered function.
        tag: one of the job's tags.
        batch: id of the batch that it belongs to.
        dispatched_before: dispatched earlier than this.
    """

    queues: tuple[str, ...] = ()
    function: str = ""
    tag: str = ""
    batch: str = ""
    dispatched_before: datetime | None = None

    @property
    def needs_events(self) -> bool:
        """Whether a job's events must be read: tags given after its dispatch are in them alone."""
        return bool(self.tag)

    def fits(self, record: JobRecord) -> bool:
        """Whether a job matches, as its events add up."""
        return self._fits(
            record.id, record.queue, record.function, record.tags, record.dispatched_at.timestamp()
        )

    def fits_call(self, call: Payload) -> bool:
        """Whether a job matches by its message; it may where :attr:`needs_events`."""
        tags = (*call.tags, self.tag) if self.needs_events else call.tags
        return self._fits(call.id, call.queue, call.function, tags, call.dispatched_at)

    def _fits(
        self, job_id: str, queue: str, function: str, tags: Collection[str], dispatched_at: float
    ) -> bool:
        member = derived_ids.member(job_id) if self.batch else None
        before = self.dispatched_before
        return (
            (not self.queues or queue in self.queues)
            and self.function in {"", function}
            and (not self.tag or self.tag in tags)
            and (not self.batch or (member is not None and member.batch == self.batch))
            and (before is None or dispatched_at < before.timestamp())
        )


EVERY_JOB = JobFilter()
