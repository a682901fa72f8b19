"""A running job's checkpoint: used in the job's thread, stored by the worker's loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec

from penstock.bus.protocol import BusUnavailable, WrongSequence
from penstock.jobs.errors import Cancelled
from penstock.jobs.job_type import encode_result
from penstock.jobs.payloads.encryption import KeyRing, about_checkpoint, holds_sealed, is_sealed
from penstock.jobs.running.checkpoints import Checkpoint, Checkpoints
from penstock.worker.claiming.claimed_job import ClaimedJob

T = TypeVar("T")

_PATIENCE_SECONDS = 30.0
_AGAIN_SECONDS = 0.2


class RunCheckpoint:
    """See :class:`penstock.jobs.running.context.JobCheckpoint`.

    An attempt that was deposed cannot overwrite: the attempt that restores a checkpoint stores it
    again as its own, and a lower fencing token is refused.
    """

    def __init__(
        self,
        job: ClaimedJob,
        loop: asyncio.AbstractEventLoop,
        checkpoints: Checkpoints,
        ring: KeyRing,
    ) -> None:
        self._job, self._loop, self._checkpoints, self._ring = job, loop, checkpoints, ring
        self._sealed, self._about = holds_sealed(job.payload), about_checkpoint(job.payload)
        self._sequence: int | None = None
        self._restored: Checkpoint | None = None

    @property
    def has_more_work(self) -> bool:
        self._take_over()
        return self._restored is None or self._restored.has_more_work

    def restore(self, kind: Any = Any) -> Any:
        self._take_over()
        if self._restored is None:
            return None
        data: bytes | msgspec.Raw = self._restored.data
        if is_sealed(data):
            data = self._ring.open(data, self._about)
        return msgspec.msgpack.decode(data, type=kind)

    def save(self, data: Any, *, has_more_work: bool = True) -> None:
        self._take_over()
        self._store(self._checkpoint(encode_result(data), has_more_work))

    def _checkpoint(self, data: bytes, has_more_work: bool) -> Checkpoint:
        if self._sealed:
            data = self._ring.seal(data, self._about)
        return Checkpoint(
            token=self._job.token, data=msgspec.Raw(data), has_more_work=has_more_work
        )

    def _take_over(self) -> None:
        """At the first use: what an earlier attempt saved is this one's from now on."""
        if self._sequence is None:
            self._look()
            restored = self._restored
            if restored and restored.token < self._run(self._checkpoints.void_before(self._job.id)):
                self._restored = None
            if self._restored is not None:
                self._store(msgspec.structs.replace(self._restored, token=self._job.token))

    def _look(self) -> None:
        self._sequence, self._restored = self._run(self._checkpoints.load(self._job.id))
        if self._restored is not None and self._restored.token > self._job.token:
            raise Cancelled  # another attempt runs

    def _store(self, kept: Checkpoint) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            if self._job.lost:
                raise Cancelled
            try:
                self._sequence = self._run(
                    self._checkpoints.save(self._job.id, kept, self._sequence or 0)
                )
            except (WrongSequence, BusUnavailable):
                # No retry helper: between tries it is read whether a newer attempt has saved.
                if time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_SECONDS)
                self._look()  # by a deposed attempt, or an own one whose answer was lost
                continue
            self._restored, self._job.live.checkpointed = kept, True
            return

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_SECONDS)
