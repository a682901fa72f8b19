"""Tags that jobs are given, or lose, after their dispatch."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.events.job import MAX_JOB_TAGS, MAX_TAG_LENGTH, JobTagged
from penstock.events.subjects import check_name
from penstock.jobs.errors import JobRefused, NotFound
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.job_filter import SCHEDULE_TAG
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord

Tags = tuple[str, ...]


class JobTags:
    """Tags jobs, also ended ones while their events are kept; reached as ``client.tags``.

    Args:
        log: the events of jobs.
    """

    def __init__(self, log: JobLog) -> None:
        self._log = log

    async def add(self, job_id: str, *tags: str) -> Tags:
        """Gives a job tags; those that it has already change nothing.

        Args:
            job_id: of a job in any state.
            tags: 1 to 100 characters each.

        Returns:
            All its tags then.

        Raises:
            NotFound: no event of the job is stored (any more).
            JobRefused: it would have more than 20 tags, one of them cannot be a tag, or the job
                changes too quickly.
            BusError
        """
        return await self._change(job_id, added=check(tags), removed=())

    async def remove(self, job_id: str, *tags: str) -> Tags:
        """Takes tags from a job; arguments and errors are those of :meth:`add`."""
        return await self._change(job_id, added=(), removed=check(tags))

    async def _change(self, job_id: str, added: Tags, removed: Tags) -> Tags:
        check_name("job", job_id)

        async def change(record: JobRecord | None) -> Tags | None:
            if record is None:
                raise NotFound(f"no job of id {job_id!r}; its events may have aged out")
            event = tagged(record, self._log.source, added, removed)
            if event is None:
                return record.tags
            after = await self._log.append_if(record, event)
            return None if after is None else after.tags

        return await compare_and_set(lambda: self._log.read(job_id), change, f"job {job_id}")


def check(tags: Iterable[str]) -> Tags:
    """``tags`` without doubles. Raises JobRefused: one cannot be given or taken."""
    distinct = tuple(dict.fromkeys(tags))
    if not distinct or len(distinct) > MAX_JOB_TAGS:
        raise JobRefused(f"expected 1 to {MAX_JOB_TAGS} tags, found {len(distinct)}")
    for tag in distinct:
        if not 0 < len(tag) <= MAX_TAG_LENGTH or not tag.isprintable() or tag != tag.strip():
            raise JobRefused(
                f"a tag has 1 to {MAX_TAG_LENGTH} printable characters and no space at its ends, "
                f"found {tag[: MAX_TAG_LENGTH + 20]!r}"
            )
        if tag.startswith(SCHEDULE_TAG):
            raise JobRefused(f"the tag {tag!r} names the schedule of a job: it is not changed")
    return distinct


def tagged(record: JobRecord, source: str, added: Tags, removed: Tags) -> JobTagged | None:
    """The event that changes a job's tags; None where they are so already.

    Raises:
        JobRefused: it would have too many.
    """
    new = tuple(tag for tag in added if tag not in record.tags)
    old = tuple(tag for tag in removed if tag in record.tags)
    if not new and not old:
        return None
    count = len(record.tags) + len(new) - len(old)
    if new and count > MAX_JOB_TAGS:
        raise JobRefused(
            f"a job has at most {MAX_JOB_TAGS} tags; job {record.id} would have {count}"
        )
    return JobTagged(
        job_id=record.id,
        correlation_id=record.id,
        source=source,
        added=new,
        removed=old,
        function=record.function,
        state=record.state.value,
    )
