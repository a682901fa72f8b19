"""How far a job's work is, kept in the broker so that another host can go on from there."""

from __future__ import annotations

import msgspec

from penstock.bus.protocol import Bus, Expect, Outgoing
from penstock.events.brief import brief, brief_fields
from penstock.events.subjects import Subjects
from penstock.jobs.errors import PayloadTooLarge
from penstock.jobs.job_log import JobLog


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One checkpoint.

    Attributes:
        token: fencing token of the attempt that saved it, or took it over.
        data: MessagePack, sealed if the job's arguments are.
        has_more_work: False when the work was done and only the end was not recorded.
    """

    token: int
    data: msgspec.Raw
    has_more_work: bool = True

    __repr__ = brief
    __rich_repr__ = brief_fields


class Checkpoints:
    """The last checkpoint of each job, replaced by compare-and-set.

    Args:
        max_bytes: larger ones are refused.
    """

    def __init__(self, bus: Bus, subjects: Subjects, max_bytes: int) -> None:
        self._bus, self._subjects, self._max_bytes = bus, subjects, max_bytes

    async def load(self, job_id: str) -> tuple[int, Checkpoint | None]:
        """Its sequence and the checkpoint, of whichever attempt; 0 and None for none.

        Raises:
            BusError, msgspec.MsgspecError
        """
        subject = self._subjects.checkpoint(job_id)
        stored = await self._bus.last(self._subjects.checkpoints_stream, subject)
        if stored is None:
            return 0, None
        return stored.sequence, msgspec.msgpack.decode(stored.body, type=Checkpoint)

    async def void_before(self, job_id: str) -> int:
        """Checkpoints with a lower token are void: the job was begun anew, or changed."""
        record = await JobLog(self._bus, self._subjects).read(job_id)
        return record.void_before if record else 0

    async def save(self, job_id: str, kept: Checkpoint, expected: int) -> int:
        """Stores it in the place of the one at sequence ``expected``; returns its own.

        Raises:
            PayloadTooLarge: more than jobs.max_checkpoint_bytes.
            WrongSequence: another one was stored meanwhile.
        """
        if len(kept.data) > self._max_bytes:
            raise PayloadTooLarge(
                f"the checkpoint of job {job_id} has {len(kept.data)} bytes, "
                f"jobs.max_checkpoint_bytes allows {self._max_bytes}; "
                "write large state to a file and save its name"
            )
        subject = self._subjects.checkpoint(job_id)
        body = msgspec.msgpack.encode(kept)
        return await self._bus.append(Outgoing(subject, body, {}, Expect(expected, subject)))

    async def remove(self, job_id: str) -> None:
        """Removes it: the job has completed."""
        await self._bus.remove(self._subjects.checkpoints_stream, self._subjects.checkpoint(job_id))
