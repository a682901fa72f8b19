"""A batch while jobs are added to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.jobs.job_type import Call

if TYPE_CHECKING:
    from penstock.jobs.batches.client import Batches


class OpenBatch:
    """A batch while it is open."""

    def __init__(self, batches: Batches, batch_id: str) -> None:
        self.id = batch_id
        self._batches, self._added = batches, 0

    async def add(self, calls: Iterable[Call], *, queue: str = "") -> list[str]:
        """See :meth:`Batches.add`."""
        ids = await self._batches.add(self.id, calls, key=self.id, queue=queue, start=self._added)
        self._added += len(ids)
        return ids
